package gloo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/tensor"
)

// TestPyTorch1 runs tests of this package with PyTorch 1.13, where Debian's package python3-torch is there
// (scripts/python-debian.sh installs it), in a process of their own. Other PyTorchs, and all tests:
//
//	CHORUS_TEST_PYTHON=/usr/bin/python3 go test ./comm/gloo
func TestPyTorch1(t *testing.T) {
	testutil.SkipIfShort(t)
	const debian = "/usr/bin/python3"
	if os.Getenv("CHORUS_TEST_PYTHON") != "" || os.Getenv("CHORUS_TEST_PYTORCH") == "0" {
		t.Skip("left out: CHORUS_TEST_PYTHON or CHORUS_TEST_PYTORCH says which PyTorch")
	}
	find := `import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)`
	if err := exec.Command(debian, "-I", "-c", find).Run(); err != nil {
		t.Skip("left out: no PyTorch of Debian's; scripts/python-debian.sh installs it")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v",
		"-test.run=^(TestWithPyTorch|TestEachSplit|TestPrograms|TestKilled|TestMeets|TestOtherPyTorch|TestLeaks)$")
	cmd.Env = append(os.Environ(), "CHORUS_TEST_PYTHON="+debian, "CHORUS_TEST_SHORT=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWithPyTorch") {
		t.Errorf("%v\n%s", err, out)
	}
}

// meeting is a rank of PyTorch that a launcher has told where to meet.
const meeting = `
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
group = dist.new_group([0, 1])
if dist.get_rank() < 2:
    dist.all_reduce(x, group=group)
dist.barrier()
print("sum", x.item(), flush=True)
os._exit(0)
`

// TestMeets demands that ranks of both kinds find each other at MASTER_ADDR, where rank 0 serves, of either kind.
func TestMeets(t *testing.T) {
	for _, ranks := range testutil.Pick([]string{"pgg"}, []string{"gpp", "pgg", "ppg"}) {
		t.Run(ranks, func(t *testing.T) {
			port, err := nettest.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			at := []string{"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port), fmt.Sprint("WORLD_SIZE=", len(ranks)),
				"USE_LIBUV=0", "GLOO_SOCKET_IFNAME=lo"}
			var wg sync.WaitGroup
			for r, kind := range ranks {
				env := append(slices.Clone(at), fmt.Sprint("RANK=", r))
				var run func() (string, error)
				if kind == 'p' {
					run = glootest.Start(t, t.TempDir(), meeting, env...).Wait
				} else {
					run = func() (string, error) {
						cmd := exec.CommandContext(t.Context(), os.Args[0])
						cmd.Env = testutil.PythonEnv(append(env, member+"="+versionName(t), member+"_MEETS=1")...)
						out, err := cmd.CombinedOutput()
						return string(out), err
					}
				}
				want := []string{"sum 6", "sum 6", "sum 3"}[r]
				wg.Go(func() {
					if out, err := run(); err != nil || !strings.Contains(out, want) {
						t.Errorf("rank %d: %v, want %s\n%s", r, err, want, out)
					}
				})
			}
			wg.Wait()
		})
	}
}

// runMeeting is meeting in Go.
func runMeeting() {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithBackend("gloo"), comm.WithTimeout(30*time.Second),
		comm.WithHints(map[string]string{"pytorch": os.Getenv(member)}))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	x := []float32{1}
	err = c.AllReduce(ctx, tensor.Of(x), comm.Sum)
	var list []int
	if c.Rank() < 2 {
		list = []int{0, 1}
	}
	part, failed := c.Split(ctx, list)
	if err = errors.Join(err, failed); err == nil && part != nil {
		err = part.AllReduce(ctx, tensor.Of(x), comm.Sum)
	}
	if err = errors.Join(err, c.Barrier(ctx)); err == nil {
		fmt.Println("sum", x[0])
		err = c.Finalize(ctx)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestOtherPyTorch demands that a rank that was told the wrong PyTorch of the others fails, and says so.
func TestOtherPyTorch(t *testing.T) {
	wrong, waits := map[string]string{"pytorch": "1.13", "prefix": "default_pg"}, "default_pg/0//cpu//0/0"
	if glootest.Version(t) < 200 {
		wrong = map[string]string{"pytorch": "2.13", "prefix": "/worker/attempt_0/default_pg"}
		waits = "/worker/attempt_0/default_pg/0/0/rank_0"
	}
	j := start(t, "pg", "", nil)
	if err := j.server.Local().Wait(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	c, err := j.join(t.Context(), 1, comm.WithHints(wrong), comm.WithTimeout(300*time.Millisecond))
	if err == nil {
		c.Finalize(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "hint pytorch") {
		t.Error(err)
	}
	j.end()
}
