package accl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// rankVar has the rank of a process that TestProcesses starts.
const rankVar = "CHORUS_TEST_ACCL_RANK"

// TestProcesses has an engine in each of three processes; then one is killed, which the others name.
func TestProcesses(t *testing.T) {
	const n = 3
	if rank, err := strconv.Atoi(os.Getenv(rankVar)); err == nil {
		if err := oneOf(rank, n, os.Getenv("CHORUS_TEST_ACCL_STORE")); err != nil {
			t.Fatal(err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "store")
	outs, cmds := make([]strings.Builder, n), make([]*exec.Cmd, n)
	for r := range n {
		cmds[r] = exec.Command(os.Args[0], "-test.run=^TestProcesses$", "-test.v")
		cmds[r].Env = append(os.Environ(), rankVar+"="+strconv.Itoa(r), "CHORUS_TEST_ACCL_STORE="+path)
		cmds[r].Stdout, cmds[r].Stderr = &outs[r], &outs[r]
		if err := cmds[r].Start(); err != nil {
			t.Fatal(err)
		}
		defer cmds[r].Process.Kill()
	}
	for r, c := range cmds {
		if err := c.Wait(); r < n-1 && err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, outs[r].String())
		}
	}
}

// oneOf is a rank in a process of its own. The last one kills itself.
func oneOf(rank, n int, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	st, err := store.OpenFile(ctx, path, store.FileOptions{})
	if err != nil {
		return err
	}
	defer st.Close()
	c, err := comm.New(ctx, comm.WithBackend(Name), comm.WithRank(rank, n), comm.WithStore(st), comm.WithName("processes"),
		comm.WithTimeout(20*time.Second))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	for _, count := range []int{1, 1000, 100_000} {
		x := make([]float32, count)
		for i := range x {
			x[i] = float32(rank + i%100)
		}
		if err := c.AllReduce(ctx, tensor.Of(x), comm.Sum); err != nil {
			return err
		}
		for i := range x {
			if x[i] != float32(3+3*(i%100)) {
				return fmt.Errorf("element %d of %d is %v", i, count, x[i])
			}
		}
	}
	if rank == n-1 {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		return err
	}
	start := time.Now()
	err = c.AllReduce(ctx, tensor.Of(make([]float32, 100_000)), comm.Sum)
	if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != n-1 {
		return fmt.Errorf("not the loss of rank %d: %v", n-1, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		return fmt.Errorf("it took %v to notice", took)
	}
	return nil
}
