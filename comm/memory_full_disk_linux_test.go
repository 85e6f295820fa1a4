package comm_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// fullVar is the disk, in the process of TestFullDisk that has one.
const fullVar = "CHORUS_TEST_FULL_DISK"

// TestFullDisk meets at a store in a file on a disk that is full: a file system of one page, in a mount namespace of its
// own.
func TestFullDisk(t *testing.T) {
	disk := os.Getenv(fullVar)
	if disk == "" {
		dir := t.TempDir()
		const script = `mount -t tmpfs -o size=4k tmpfs "$1" && head -c 8192 /dev/zero 2>/dev/null >"$1/rest"; ` +
			`exec "$0" -test.v -test.run '^TestFullDisk$'`
		if err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", dir).Run(); err != nil {
			t.Skipf("left out: no file system can be mounted here: %v", err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script, os.Args[0], dir)
		cmd.Env = append(os.Environ(), fullVar+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	path := filepath.Join(disk, "store")
	st, err := store.OpenFile(ctx, path, store.FileOptions{Cleanup: store.CleanupCount})
	if err == nil {
		defer st.Close()
		_, err = comm.New(ctx, comm.WithRank(0, 2), comm.WithStore(st), comm.WithFabric("shm"),
			comm.WithTimeout(5*time.Second))
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("a store on a full disk gives %v", err)
	}
}
