package launch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// gloo is a program for torchrun: it meets its peers in the launcher's store, and sums the ranks. In the first attempt
// it leaves keys behind and fails, so that the second one would stumble over them if it saw them.
const gloo = `
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(t)
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "sum", t[999].item(), "of", dist.get_world_size())
store = dist.distributed_c10d._get_default_store()
if store.add("left behind", 1) > dist.get_world_size():
    sys.exit("saw a key of another attempt")
dist.barrier()
if os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ["TORCHELASTIC_MAX_RESTARTS"]:
    raise RuntimeError("first attempt of rank %d" % dist.get_rank())
dist.destroy_process_group()
`

// TestTorch runs a program for torchrun with real PyTorch: on one node, and on two with a restart.
func TestTorch(t *testing.T) {
	python := testutil.Python(t)
	for restarts, layout := range [][]int{{2}, {1, 1}} {
		if restarts == 0 && testutil.Short() {
			continue // two nodes need all that one does
		}
		t.Run(fmt.Sprint(len(layout), " nodes"), func(t *testing.T) {
			nodes := startNodes(t, layout, true, func(_ int, j *Job) {
				j.Command = []string{python, "-u", "-c", gloo}
				j.Env = testutil.PythonEnv("GLOO_SOCKET_IFNAME=lo")
				j.MaxRestarts = restarts
			}, "")
			var out, errs string
			for _, n := range nodes {
				if err := <-n.result; err != nil {
					t.Error(err)
				}
				out += n.out.String()
				errs += n.errs.String()
			}
			for a := range restarts + 1 {
				launchtest.WantText(t, out, fmt.Sprintf("[0]: attempt %d sum 3.0 of 2", a), fmt.Sprintf("[1]: attempt %d sum 3.0 of 2", a))
			}
			if failed := strings.Contains(errs, "RuntimeError: first attempt of rank "); failed != (restarts > 0) || t.Failed() {
				t.Errorf("%d restarts:\n%s", restarts, errs)
			}
		})
	}
}
