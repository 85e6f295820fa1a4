package ucx_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
)

// smallVar is set in the process of TestSmallSharedMemory, whose /dev/shm is small.
const smallVar = "CHORUS_TEST_UCX_SMALL"

// Where /dev/shm has no room for UCX's shared memory, as in a container with many ranks, the fabric goes on without
// it. If the user has said which transports to use, the error says so.
func TestSmallSharedMemory(t *testing.T) {
	if os.Getenv(smallVar) == "" {
		need(t)
		if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm").CombinedOutput(); err != nil {
			t.Skipf("left out: no file system can be mounted here: %v %s", err, out)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c",
			`mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -test.v -test.run '^TestSmallSharedMemory$'`, os.Args[0])
		cmd.Env = append(os.Environ(), smallVar+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var wg sync.WaitGroup
	for _, f := range world(t, 2, nil) {
		wg.Go(func() {
			defer f.Close(context.Background())
			if err := fabrictest.Program(f, 1); err != nil {
				t.Errorf("rank %d: %v", f.Rank(), err)
			}
		})
	}
	wg.Wait()
	_, err := open(2, func(c *fabric.Config) { c.Options["transports"] = "posix,tcp" })
	if err == nil || !strings.Contains(err.Error(), "shared memory") || !strings.Contains(err.Error(), "UCX_TLS=posix,tcp") {
		t.Errorf("with transports posix,tcp: %v", err)
	}
}

// A rank that can't make a link isn't told that the other rank is lost.
func TestNoTransport(t *testing.T) {
	need(t)
	fabrics := world(t, 2, func(c *fabric.Config) { c.Options["transports"] = "self" })
	defer func() {
		for _, f := range fabrics {
			f.Close(context.Background())
		}
	}()
	err := fabrictest.Program(fabrics[0], 1)
	if !errors.Is(err, fabric.ErrNoTransport) || !strings.Contains(err.Error(), "UCX_TLS=self") {
		t.Errorf("without a transport: %v", err)
	}
	if err := base.LossOf(backend.Where{}, 1, err); errors.Is(err, backend.ErrPeerLost) ||
		strings.Contains(err.Error(), "is lost") {
		t.Errorf("%v", err)
	}
}
