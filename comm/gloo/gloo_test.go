package gloo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	_ "github.com/chorus-comms/chorus/comm/gloo"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/short"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a list of steps: every collective over some types and sizes, messages, and groups.
func everything(n int) (steps []step) {
	add := func(kind, op, dt string, count int) {
		steps = append(steps, step{Kind: kind, Op: op, DType: dt, Count: count, Root: len(steps)})
	}
	for _, dt := range []string{"float32", "int64", "bfloat16", "bool"} {
		for _, count := range []int{0, 1, 17, 4096} {
			ops := []string{"sum", "product", "min", "max"}
			if dt == "int64" {
				ops = append(ops, "band", "bxor")
			}
			if dt == "float32" {
				ops = append(ops, "avg")
			}
			for i, op := range ops {
				add("all_reduce", op, dt, count)
				add("reduce_scatter", op, dt, count)
				if i < 2 {
					add("reduce", op, dt, count)
					add("reduce_scatter_single", op, dt, count)
				}
			}
			for _, kind := range []string{"broadcast", "all_gather", "all_gather_single", "all_to_all_single",
				"all_to_all_v_single", "all_to_all", "gather", "scatter", "barrier", "ring", "any"} {
				if kind == "any" && count == 0 {
					continue // PyTorch refuses an empty receive from anyone
				}
				add(kind, "", dt, count)
			}
		}
	}
	add("all_reduce", "sum", "float32", 3<<20/4*n+1) // segments of a MiB, some of them empty
	add("reduce", "max", "float32", 3<<20/4*n+1)
	for first := range n - 1 {
		var ranks []int
		for r := first; r < n; r++ {
			ranks = append(ranks, r)
		}
		steps = append(steps, step{Kind: "new_group", Ranks: ranks})
		add("all_reduce", "sum", "float32", 17)
		add("all_gather", "", "int32", 17)
		add("ring", "", "int8", 17)
	}
	steps = append(steps, step{Kind: "new_group"})
	add("barrier", "", "float32", 0)
	return steps
}

// TestWithPyTorch demands that ranks in Go and ranks of PyTorch get the bits that PyTorch's get among themselves.
func TestWithPyTorch(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) { withPyTorch(t, n) })
	}
}

func withPyTorch(t *testing.T, n int) {
	steps := everything(n)
	want := results(t, "pppp"[:n], steps)
	all := splits(n)
	if short.Run() {
		all = []string{all[0], all[len(all)-1]}
	}
	for _, ranks := range all {
		t.Run(ranks, func(t *testing.T) {
			for r, got := range results(t, ranks, steps) {
				if i := differs(got, want[r]); i >= 0 {
					t.Errorf("rank %d: of %d bytes, PyTorch's are %d, number %d is another one, in %+v", r, len(got),
						len(want[r]), i, at(steps, r, n, i))
				}
			}
		})
	}
}

// differs returns where two results differ; negative if they don't.
func differs(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// at returns the step of which byte i of a rank's results is, of those before the first group.
func at(steps []step, rank, n, i int) step {
	for _, s := range steps {
		size, blocks := s.Count*parse(s.DType).Size(), 1
		switch {
		case s.Kind == "barrier", s.Kind == "reduce" && rank != s.Root%n, s.Kind == "gather" && rank != s.Root%n,
			s.Kind == "any" && rank != s.Root%n:
			blocks = 0
		case s.Kind == "any":
			blocks = n - 1
		case s.Kind == "all_to_all_v_single":
			size = 0
			for from := range n {
				size += split(s.Count, from, rank) * parse(s.DType).Size()
			}
		case s.Kind == "all_gather", s.Kind == "all_gather_single", s.Kind == "all_to_all_single", s.Kind == "gather",
			s.Kind == "all_to_all":
			blocks = n
		}
		if i -= blocks * size; i < 0 {
			return s
		}
	}
	return step{}
}

// worlds are worlds of ranks in Go.
func worlds(t testing.TB, size int) []*comm.Comm {
	t.Helper()
	st := store.NewHash(30 * time.Second)
	comms, errs := make([]*comm.Comm, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			comms[r], errs[r] = comm.New(context.Background(), comm.WithBackend("gloo"), comm.WithRank(r, size),
				comm.WithStore(st), comm.WithTimeout(30*time.Second))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return comms
}

// TestConformance runs the suite of all backends among ranks in Go.
func TestConformance(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: worlds})
}

// killed is a rank of PyTorch that the test kills in the middle of a collective.
const killed = `
import os, signal
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1000)
dist.all_reduce(x)
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(x)
except RuntimeError:
    os._exit(0)  # threads of the group may be in the failed operation
os._exit(1)
`

// TestKilledPyTorch demands that a rank in Go names the rank of PyTorch that was killed.
func TestKilledPyTorch(t *testing.T) {
	j := start(t, "gpp", killed, nil)
	ctx := context.Background()
	c, err := j.join(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(ctx)
	x := tensor.Must(tensor.Empty(dtype.Float32, 1000))
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		t.Fatal(err)
	}
	err = c.AllReduce(ctx, x, comm.Sum)
	var lost *comm.PeerLostError
	if !errors.As(err, &lost) || lost.Peer != 1 {
		t.Errorf("rank 1 was killed: %v", err)
	}
	if out, err := j.peers[2](); err != nil {
		t.Errorf("the other rank of PyTorch: %v\n%s", err, out)
	}
}

// TestGoneGo demands that ranks of PyTorch, and those in Go, fail when a rank in Go gives up.
func TestGoneGo(t *testing.T) {
	j := start(t, "pgg", killed, nil)
	ctx := context.Background()
	var wg sync.WaitGroup
	for r := 1; r < 3; r++ {
		wg.Go(func() {
			c, err := j.join(ctx, r)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Finalize(ctx)
			x := tensor.Must(tensor.Empty(dtype.Float32, 1000))
			if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
				t.Error(err)
			}
			if r == 2 {
				c.Abort(errors.New("enough"))
				return
			}
			var lost *comm.PeerLostError
			if err := c.AllReduce(ctx, x, comm.Sum); !errors.As(err, &lost) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	if out, err := j.peers[0](); err != nil {
		t.Errorf("PyTorch's rank: %v\n%s", err, out)
	}
	wg.Wait()
}

// TestTimeout demands that a rank in Go says whom it waits for.
func TestTimeout(t *testing.T) {
	comms := worlds(t, 3)
	ctx := context.Background()
	for _, c := range comms {
		defer c.Finalize(ctx)
	}
	var wg sync.WaitGroup
	wg.Go(func() { comms[2].Barrier(ctx, comm.Timeout(time.Second)) })
	err := comms[0].Barrier(ctx, comm.Timeout(300*time.Millisecond))
	wg.Wait()
	var late *comm.TimeoutError
	if !errors.As(err, &late) || slices.Contains(late.Arrived, 1) || slices.Contains(late.Missing, 2) {
		t.Errorf("rank 1 doesn't come: %v", err)
	}
}

// TestStray demands that ranks in different collectives learn so from the slots.
func TestStray(t *testing.T) {
	comms := worlds(t, 2)
	ctx := context.Background()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for r, c := range comms {
		defer c.Finalize(ctx)
		wg.Go(func() {
			if r == 0 {
				errs[r] = c.Barrier(ctx)
			} else {
				errs[r] = c.AllReduce(ctx, tensor.Of([]float32{1}), comm.Sum)
			}
		})
	}
	wg.Wait()
	for r, err := range errs {
		if !errors.Is(err, comm.ErrMismatch) && !errors.Is(err, comm.ErrPeerLost) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if !errors.Is(errs[0], comm.ErrMismatch) && !errors.Is(errs[1], comm.ErrMismatch) {
		t.Errorf("no rank tells a mismatch: %v", errs)
	}
}
