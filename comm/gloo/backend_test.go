package gloo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	_ "github.com/chorus-comms/chorus/comm/gloo"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(running{m}) }

// running runs the tests, and ends what they share.
type running struct{ *testing.M }

func (r running) Run() int {
	if seat := os.Getenv(victim); seat != "" {
		runVictim(seat)
	}
	if os.Getenv(member+"_MEETS") != "" {
		runMeeting()
	}
	if os.Getenv(member) != "" {
		runMember()
	}
	defer glootest.Stop()
	return r.M.Run()
}

// everything is a list of steps: every collective, and messages, over some types and sizes.
func everything(dtypes []string, counts ...int) (steps []glootest.Operation) {
	for _, dt := range dtypes {
		for _, count := range counts {
			add := func(kind, op string) {
				steps = append(steps, glootest.Operation{Kind: kind, Op: op, DType: dt, Count: count, Root: len(steps), NaN: true})
			}
			for _, kind := range glootest.Kinds {
				if !glootest.Reduces(kind) {
					add(kind, "")
					continue
				}
				for _, op := range glootest.Ops(dt) {
					if op != "avg" || kind != "reduce" {
						add(kind, op)
					}
				}
			}
			if add("ring", ""); count > 0 { // PyTorch refuses an empty receive from anyone
				add("any", "")
			}
		}
	}
	return steps
}

// segments are the steps of buffers of many segments of a MiB, some of them empty, in a world of n ranks.
func segments(n int) []glootest.Operation {
	s := glootest.Operation{Kind: "all_reduce", Op: "sum", DType: "float32", Count: 3<<20/4*n + 1}
	r := s
	r.Kind, r.Op, r.Root = "reduce", "max", 1
	return []glootest.Operation{s, r}
}

// groups are the steps of groups in a world of n ranks.
func groups(n int) (steps []glootest.Operation) {
	for first := range n - 1 {
		steps = append(steps, group(n, first)...)
	}
	return append(steps, glootest.Operation{Kind: "new_group"}, glootest.Operation{Kind: "barrier", DType: "float32"})
}

// group are the steps of a group of all ranks from the first on.
func group(n, first int) []glootest.Operation {
	var ranks []int
	for r := first; r < n; r++ {
		ranks = append(ranks, r)
	}
	return []glootest.Operation{{Kind: "new_group", Ranks: ranks},
		{Kind: "all_reduce", Op: "sum", DType: "float32", Count: 17}, {Kind: "all_gather", DType: "int32", Count: 17},
		{Kind: "ring", DType: "int8", Count: 17}, {Kind: "barrier", DType: "float32"}}
}

// hours tells that tests may take that long.
var hours = os.Getenv("CHORUS_TEST_LONG") == "1"

// sizes are how many elements the blocks of a rank have.
var sizes = []int{0, 1, 17, 4096}

// TestWithPyTorch demands that ranks in Go and ranks of PyTorch get the bits that PyTorch's get among themselves: every
// collective, in worlds of ranks of both kinds.
func TestWithPyTorch(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			all := splits(n)
			steps := everything(glootest.DTypes, sizes...)
			if n == 4 && !hours {
				all = some(all, n, 4)
			}
			if testutil.Short() {
				if steps = everything([]string{"float32"}, 17); n < 4 {
					steps = append(steps, everything([]string{"float32", "bfloat16", "bool", "complex64"}[n-2:], 0, 1, 4096)...)
				}
				all = []string{2: "pg", 3: "gpp", 4: "pggp"}[n : n+1]
			}
			if n < 4 || !testutil.Short() {
				steps = append(steps, segments(n)...)
			}
			compare(t, n, all, append(steps, groups(n)...))
		})
	}
}

// TestEachSplit is TestWithPyTorch for worlds with many splits between PyTorch and Go. A split has one type of elements
// and one group; eleven seeds give it all. Some splits stand for all unless tests may take hours, which this one
// doesn't:
//
//	CHORUS_TEST_LONG=1 go test -timeout 1h ./comm/gloo -run TestEachSplit -args -seed 3
func TestEachSplit(t *testing.T) {
	if testutil.Short() {
		compare(t, 5, []string{"gpgpp"}, append(everything([]string{"float32"}, 17), groups(5)...))
		return
	}
	for _, n := range []int{5, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			types := some(glootest.DTypes, n, 2)
			if hours {
				types = glootest.DTypes
			}
			for i, dt := range types {
				k := slices.Index(glootest.DTypes, dt)
				var mine []string
				for i, ranks := range splits(n) {
					if (i+int(*seed))%len(glootest.DTypes) == k {
						mine = append(mine, ranks)
					}
				}
				if !hours {
					mine = some(mine, n, 2)
				}
				steps := append(everything([]string{dt}, sizes...), group(n, k%(n-1))...)
				if i == 0 {
					steps = append(segments(n), steps...)
				}
				compare(t, n, mine, steps)
			}
		})
	}
}

// some are some of all, which follow from the seed.
func some(all []string, n, k int) []string {
	all = slices.Clone(all)
	rand.New(rand.NewPCG(*seed, uint64(n))).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(k, len(all))]
}

// TestLargeWithPyTorch is TestWithPyTorch for blocks of 1 Mi elements. Unless it may take hours, a type has one
// reduction.
func TestLargeWithPyTorch(t *testing.T) {
	testutil.SkipIfShort(t)
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // ranks of PyTorch need the memory
	all, steps := []string{"pg", "gpg"}, everything(glootest.DTypes, 1<<20)
	if hours {
		all = append(all, "pggp", "gpgpg", "pgppgppg")
	} else {
		steps = slices.DeleteFunc(steps, func(s glootest.Operation) bool {
			ops := glootest.Ops(s.DType)
			return s.Op != "" && s.Op != ops[(3+slices.Index(glootest.DTypes, s.DType))%len(ops)]
		})
	}
	for _, ranks := range all {
		t.Run(ranks, func(t *testing.T) {
			if len(ranks) == 8 { // which would take 5 GB
				steps = slices.DeleteFunc(steps, func(s glootest.Operation) bool { return s.DType == "complex128" })
			}
			compare(t, len(ranks), []string{ranks}, steps)
		})
	}
}

// compare runs the steps in worlds of n ranks, and demands what ranks of PyTorch get among themselves.
func compare(t *testing.T, n int, worlds []string, steps []glootest.Operation, env ...string) {
	t.Helper()
	steps = slices.DeleteFunc(slices.Clone(steps), func(s glootest.Operation) bool {
		return s.Kind != "new_group" && !s.In(glootest.Version(t))
	})
	want := alone(t, n, steps)
	for _, ranks := range worlds {
		t.Run(ranks, func(t *testing.T) {
			for r, got := range results(t, ranks, steps, env...) {
				theirs := want[r]
				if len(got) != len(theirs) {
					t.Errorf("rank %d has results of %d steps, in PyTorch of %d", r, len(got)/4, len(theirs)/4)
					continue
				}
				k := 0
				for i, s := range mine(steps, r) {
					if k += 4; !bytes.Equal(got[k-4:k], theirs[k-4:k]) {
						t.Errorf("rank %d: step %d, %+v, has another result than in PyTorch", r, i, s)
					}
				}
			}
		})
	}
}

// known are the results of steps among ranks of PyTorch, by the steps: how they connect doesn't matter.
var known = map[string][][]byte{}

// alone runs the steps in a world of n ranks of PyTorch, unless they have been run.
func alone(t *testing.T, n int, steps []glootest.Operation) [][]byte {
	t.Helper()
	key := fmt.Sprint(n, steps)
	if known[key] == nil {
		before := t.Failed()
		if known[key] = results(t, strings.Repeat("p", n), steps); t.Failed() && !before {
			t.FailNow() // there is nothing to compare with
		}
	}
	return known[key]
}

// mine are the steps that a rank has results of, by their numbers.
func mine(steps []glootest.Operation, rank int) iter.Seq2[int, glootest.Operation] {
	return func(yield func(int, glootest.Operation) bool) {
		var group []int
		for i, s := range steps {
			switch {
			case s.Kind == "new_group":
				group = s.Ranks
			case group != nil && !slices.Contains(group, rank):
			case !yield(i, s):
				return
			}
		}
	}
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

// TestUneven gathers and scatters blocks of several sizes: messages between two ranks need no more than these two know.
func TestUneven(t *testing.T) {
	comms := worlds(t, 3)
	ctx := context.Background()
	var wg sync.WaitGroup
	for me, c := range comms {
		wg.Go(func() {
			defer c.Finalize(ctx)
			block := func(r int, v float32) *tensor.Tensor { return tensor.Of(slices.Repeat([]float32{v}, r+1)) }
			var list []*tensor.Tensor
			for r := range c.Size() {
				list = append(list, block(r, -1))
			}
			if err := c.Gather(ctx, list, block(me, float32(me)), 1); err != nil {
				t.Error(err)
			}
			back := make([]float32, me+1)
			if err := c.Scatter(ctx, tensor.Of(back), list, 1); err != nil || slices.Max(back) != float32(me) ||
				slices.Min(back) != float32(me) {
				t.Errorf("rank %d: %v, %v", me, back, err)
			}
		})
	}
	wg.Wait()
}

// TestGoneGo demands that ranks of PyTorch, and those in Go, fail when a rank in Go gives up.
func TestGoneGo(t *testing.T) {
	j := start(t, "pgg", endless, []glootest.Operation{{Kind: "all_reduce", Op: "sum", DType: "float32", Count: 1000}})
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
			if err := errors.Join(c.Barrier(ctx), c.AllReduce(ctx, x, comm.Sum)); err != nil {
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
	if out, err := j.peers[0].Wait(); err != nil {
		t.Errorf("PyTorch's rank: %v\n%s", err, out)
	}
	wg.Wait()
}

// TestTimeout demands that the error of a rank in Go names the ranks that it waits for.
func TestTimeout(t *testing.T) {
	comms := worlds(t, 3)
	ctx := context.Background()
	for _, c := range comms {
		defer c.Finalize(ctx)
	}
	var wg sync.WaitGroup
	until, cancel := context.WithCancel(ctx)
	wg.Go(func() { comms[2].Barrier(until) })
	err := comms[0].Barrier(ctx, comm.Timeout(300*time.Millisecond))
	cancel()
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
