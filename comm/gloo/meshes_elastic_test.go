package gloo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/tensor"
)

// restarted is a rank of PyTorch that dies in the first attempt if it's rank 2.
const restarted = `
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
x = torch.ones(1)
dist.all_reduce(x)
if attempt == "0" and dist.get_rank() == 2:
    os._exit(3)
dist.all_reduce(x)
print("attempt", attempt, "sum", x.item(), flush=True)
dist.barrier()
os._exit(0)
`

// member, in the environment, makes this test binary a rank in Go of a launcher's job, whose PyTorch is that.
const member = "CHORUS_TEST_GLOO_MEMBER"

// members, in the environment, says of each rank of a launcher's job which it is, as a job does.
const members = member + "_KINDS"

func runMember() {
	if kinds := os.Getenv(members); kinds != "" {
		if r, err := strconv.Atoi(os.Getenv("RANK")); err != nil || kinds[r] == 'p' {
			glootest.Enter(restarted)
		}
	}
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithBackend("gloo"), comm.WithTimeout(30*time.Second),
		comm.WithHints(map[string]string{"pytorch": os.Getenv(member)}))
	x := []float32{1}
	for range 2 {
		if err == nil {
			err = c.AllReduce(ctx, tensor.Of(x), comm.Sum)
		}
	}
	if err == nil {
		fmt.Println("attempt", os.Getenv("TORCHELASTIC_RESTART_COUNT"), "sum", x[0], "in Go")
		err = errors.Join(c.Barrier(ctx), c.Finalize(ctx))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestRestart demands that a launcher can start a job of both kinds of ranks again after one has died: ours, and
// torchrun with a store for each attempt, which rank 0 serves, of either kind. (With one for all attempts, PyTorch's
// ranks find each other's addresses of the former one.)
func TestRestart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := func(kinds string) []string {
		return testutil.PythonEnv(member+"="+versionName(t), members+"="+kinds, glootest.Door(t), "GLOO_SOCKET_IFNAME=lo",
			"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
	}
	torchrun := func(kinds string) func(*bytes.Buffer) error {
		return func(out *bytes.Buffer) error {
			cmd := exec.CommandContext(t.Context(), testutil.Python(t), "-m", "torch.distributed.run", "--standalone",
				"--nproc-per-node", "3", "--max-restarts", "1", "--no-python", exe)
			cmd.Env, cmd.Stdout, cmd.Stderr = env(kinds), out, out
			return cmd.Run()
		}
	}
	for name, run := range map[string]func(out *bytes.Buffer) error{
		"chorus run": func(out *bytes.Buffer) error {
			j := launch.Job{Command: []string{exe}, RanksPerNode: 3, MaxRestarts: 1, Env: env("pgp"), Stdout: out, Stderr: out}
			return j.Run(t.Context())
		},
		"torchrun, PyTorch serves": torchrun("pgp"),
		"torchrun, Go serves":      torchrun("gpp"),
	} {
		if testutil.Short() && name != "chorus run" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(&out); err != nil || !strings.Contains(out.String(), "attempt 1 sum 9 in Go") {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}
