package test

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

// others is a rank of PyTorch beside one in C, the last: harness/wire.c.
const others = `
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
x = torch.arange(1000, dtype=torch.int32) + rank
dist.all_reduce(x)
assert x.tolist() == [n * (n - 1) // 2 + n * i for i in range(1000)]
dist.broadcast(x.fill_(7) if rank == 0 else x, 0)
parts = list(torch.zeros(n, 1, dtype=torch.int32))
dist.all_gather(parts, torch.tensor([10 * rank], dtype=torch.int32))
assert [int(p) for p in parts] == [10 * r for r in range(n)]
work = dist.isend(torch.tensor([10 * rank], dtype=torch.int32), (rank + 1) % n, tag=5)
got = torch.zeros(1, dtype=torch.int32)
dist.recv(got, (rank + n - 1) % n, tag=5)
work.wait()
assert int(got) == (rank + n - 1) % n * 10
group = dist.new_group([0, n - 1])
if rank == 0:
    one = torch.ones(1, dtype=torch.int32)
    dist.all_reduce(one, group=group)
    assert int(one) == 2
dist.barrier()
dist.destroy_process_group()
`

// TestWire has a rank in C join a job of PyTorch, by the backend "gloo".
func TestWire(t *testing.T) {
	testutil.SkipIfShort(t)
	const size = 3
	path := harness.build(t)
	st, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	t.Cleanup(glootest.Stop)
	var theirs []*glootest.Rank
	for r := range size - 1 {
		theirs = append(theirs, glootest.Start(t, t.TempDir(), others, glootest.Environ(st.Addr(), r, size)...))
	}
	ranks(t, 1, func(int) *exec.Cmd {
		return exec.Command(path, "wire", fmt.Sprint(size-1), fmt.Sprint(size), "tcp://"+st.Addr().String())
	})
	for r, p := range theirs {
		if out, err := p.Wait(); err != nil {
			t.Errorf("PyTorch's rank %d: %v\n%s", r, err, out)
		}
	}
}
