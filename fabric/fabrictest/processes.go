package fabrictest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// The environment variables by which the processes of a test find each other.
const (
	rankVar = "CHORUS_FABRICTEST_RANK"
	dirVar  = "CHORUS_FABRICTEST_DIR"
)

// Processes runs body once per rank, each in a process of its own: the test
// binary starts itself again to run just this test. The configuration that body
// gets has rank, size, timeout and an Exchange over files; it opens the fabric
// itself. Code before the call runs in every process.
func Processes(t *testing.T, size int, body func(t *testing.T, c fabric.Config)) {
	t.Helper()
	c := fabric.Config{Size: size, HostID: "here", Timeout: patience}
	if v := os.Getenv(rankVar); v != "" {
		c.Rank, _ = strconv.Atoi(v)
		c.Exchange = exchange(os.Getenv(dirVar), c.Rank, size)
		body(t, c)
		return
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	outputs := make([]bytes.Buffer, size)
	cmds := make([]*exec.Cmd, size)
	for r := range cmds {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), rankVar+"="+strconv.Itoa(r), dirVar+"="+dir)
		cmd.Stdout, cmd.Stderr = &outputs[r], &outputs[r]
		if err := cmd.Start(); err != nil {
			t.Errorf("rank %d: %v", r, err)
			break
		}
		cmds[r] = cmd
	}
	for r, cmd := range cmds {
		if cmd == nil {
			cancel()
			continue
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, outputs[r].Bytes())
		}
	}
}

// exchange passes payloads through files in a directory. It may be called
// several times.
func exchange(dir string, rank, size int) func(context.Context, []byte) ([][]byte, error) {
	round := 0
	return func(ctx context.Context, payload []byte) ([][]byte, error) {
		round++
		name := func(r int) string { return filepath.Join(dir, fmt.Sprintf("%d.%d", round, r)) }
		// Written under another name first, so that no process reads half of it.
		if err := os.WriteFile(name(rank)+".new", payload, 0o600); err != nil {
			return nil, err
		}
		if err := os.Rename(name(rank)+".new", name(rank)); err != nil {
			return nil, err
		}
		all := make([][]byte, size)
		for r := range all {
			for {
				b, err := os.ReadFile(name(r))
				if err == nil {
					all[r] = b
					break
				}
				select {
				case <-ctx.Done():
					return nil, fmt.Errorf("rank %d has not appeared: %w", r, ctx.Err())
				case <-time.After(time.Millisecond):
				}
			}
		}
		return all, nil
	}
}
