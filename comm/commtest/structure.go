package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// sumOfRanks all-reduces each rank's number on c and compares.
func sumOfRanks(ctx context.Context, c *comm.Comm) error {
	if c.Capabilities().NoOp {
		return nil
	}
	x, n := (&maker{ctx: ctx, c: c}).of(dtype.Int64, 1, func(int) float64 { return float64(c.Rank() + 1) }), c.Size()
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		return err
	}
	return check(ctx, fmt.Sprintf("sum over %d ranks", n), x, func(int) float64 { return float64(n * (n + 1) / 2) })
}

// Split tests groups: contiguous, strided, reversed, nested, disjoint, empty.
func Split(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			me := c.Rank()
			use := func(ranks []int) error {
				g, err := c.Split(ctx, ranks)
				if err != nil {
					return fmt.Errorf("split%v: %w", ranks, err)
				}
				if len(ranks) == 0 {
					if g != nil {
						return errors.New("an empty list gives a communicator")
					}
					return nil
				}
				if want := slices.Index(ranks, me); g.Rank() != want || g.Size() != len(ranks) {
					return fmt.Errorf("split%v: rank %d of %d, want %d of %d", ranks, g.Rank(), g.Size(), want, len(ranks))
				}
				if err := sumOfRanks(ctx, g); err != nil {
					return fmt.Errorf("split%v: %w", ranks, err)
				}
				m := &maker{ctx: ctx, c: g, shared: cfg.Shared}
				if !g.Capabilities().NoOp {
					x := cell{kind: backend.AllGatherSingle, dt: dtype.Int32, count: 513}
					if err := x.exec(ctx, g, m); err != nil {
						return fmt.Errorf("split%v: %w", ranks, err)
					}
				}
				if g.Size() > 1 { // nested: all ranks but the last
					var inner []int
					if g.Rank() < g.Size()-1 {
						for r := range g.Size() - 1 {
							inner = append(inner, r)
						}
					}
					h, err := g.Split(ctx, inner)
					if err != nil {
						return fmt.Errorf("nested split: %w", err)
					}
					if h != nil {
						if err := sumOfRanks(ctx, h); err != nil {
							return err
						}
						if err := h.Finalize(ctx); err != nil {
							return err
						}
					}
				}
				return g.Finalize(ctx)
			}
			var everybody, reversed, parity, firstHalf []int
			for r := range n {
				everybody = append(everybody, r)
				reversed = append(reversed, n-1-r)
				if r%2 == me%2 {
					parity = append(parity, r)
				}
				if r < (n+1)/2 && me < (n+1)/2 {
					firstHalf = append(firstHalf, r)
				}
			}
			for _, ranks := range [][]int{everybody, reversed, parity, firstHalf, {me}, nil, everybody} {
				if err := use(ranks); err != nil {
					return err
				}
			}
			if err := sumOfRanks(ctx, c); err != nil {
				return fmt.Errorf("parent after splits: %w", err)
			}
			return nil
		})
		if n > 1 {
			w.each(func(ctx context.Context, c *comm.Comm) error {
				if c.Capabilities().NoOp {
					return nil
				}
				// Rank 0 names a partner that names no ranks: an error on every rank, and the
				// communicator remains usable.
				var ranks []int
				if c.Rank() == 0 {
					ranks = []int{0, 1}
				}
				if _, err := c.Split(ctx, ranks); !errors.Is(err, comm.ErrMismatch) {
					return fmt.Errorf("a split that the ranks don't agree on gives %v", err)
				}
				return sumOfRanks(ctx, c)
			})
		}
	}
}

// Async tests the order, the handles and the concurrency of asynchronous operations.
func Async(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().NoOp {
				return nil
			}
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			me := c.Rank()
			// A chain through one tensor: each step depends on the one before.
			x := m.of(dtype.Int64, 100, func(int) float64 { return 1 })
			var works [8]comm.Work
			for k := range works {
				if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&works[k])); err != nil {
					return err
				}
			}
			if err := synchronized(ctx, c, c.Barrier(ctx)); err != nil { // runs behind them
				return err
			}
			for k := range works {
				if !works[k].Completed() {
					return fmt.Errorf("operation %d is not complete although a later one is", k)
				}
				if err := works[k].Wait(ctx); err != nil {
					return err
				}
			}
			want := 1.0
			for range works {
				want *= float64(n)
			}
			if err := check(ctx, "chain", x, func(int) float64 { return want }); err != nil {
				return err
			}
			// Works that the caller drops.
			for range 5 {
				if err := c.AllReduce(ctx, m.of(dtype.Float32, 1000, func(int) float64 { return 1 }), comm.Sum,
					comm.Async(new(comm.Work))); err != nil {
					return err
				}
			}
			// A Work is used once at a time.
			var busy comm.Work
			y := m.of(dtype.Float32, 10, func(int) float64 { return 1 })
			if err := c.Broadcast(ctx, y, 0, comm.Async(&busy)); err != nil {
				return err
			}
			<-busy.Done()
			if err := c.Broadcast(ctx, y, 0, comm.Async(&busy)); err != nil {
				return fmt.Errorf("a finished Work is used again: %w", err)
			}
			if err := busy.Synchronize(ctx); err != nil || busy.Status() != comm.Completed {
				return fmt.Errorf("status %v, error %v", busy.Status(), err)
			}
			// Many goroutines, sends and receives beside collectives that only one of them issues.
			var wg sync.WaitGroup
			errs := make([]error, 9)
			for k := range 8 {
				if caps := c.Capabilities(); !caps.Tags || !caps.Serves(device.Host) {
					break
				}
				wg.Go(func() {
					for i := range 20 {
						got, sent := make([]int32, 50), make([]int32, 50)
						sent[7] = int32(me*1000 + i)
						b := c.Batch()
						b.Send(tensor.Of(sent), (me+1)%n, comm.Tag(100+k))
						b.Recv(tensor.Of(got), (me+n-1)%n, comm.Tag(100+k))
						if errs[k] = b.Issue(ctx); errs[k] != nil {
							return
						}
						if want := int32((me+n-1)%n*1000 + i); got[7] != want {
							errs[k] = fmt.Errorf("goroutine %d, message %d: got %d, want %d", k, i, got[7], want)
							return
						}
					}
				})
			}
			wg.Go(func() {
				for range 30 {
					if errs[8] = sumOfRanks(ctx, c); errs[8] != nil {
						return
					}
				}
			})
			wg.Wait()
			return errors.Join(errs...)
		})
	}
}

// Hooks tests that hooks see every operation and can refuse it.
func Hooks(t *testing.T, cfg Config) {
	w := cfg.open(t, 2)
	w.each(func(ctx context.Context, c *comm.Comm) error {
		var mu sync.Mutex
		var log []string
		pre := c.RegisterPreHook(func(o comm.OpInfo) error {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, "pre "+o.Kind.String())
			return nil
		})
		post := c.RegisterCompletionHook(func(o comm.OpInfo, err error) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("done %v %v", o.Kind, err))
		})
		if err := synchronized(ctx, c, c.Barrier(ctx)); err != nil {
			return err
		}
		var seen comm.OpInfo
		look := c.RegisterPreHook(func(o comm.OpInfo) error { seen = o; return nil })
		x := zeros(ctx, c, dtype.Float32, 1)
		reduce := func(opts ...comm.Option) error { return c.AllReduce(ctx, x, comm.Sum, opts...) }
		if err := asynchronous(ctx, c, reduce); err != nil {
			return err
		}
		if seen.In != x || seen.Out != x || !seen.Async || seen.Comm != c.Name() {
			return fmt.Errorf("a hook saw %+v for an operation on %v", seen, x)
		}
		look.Remove()
		refusal := errors.New("refused")
		refuse := c.RegisterPreHook(func(comm.OpInfo) error { return refusal })
		if err := synchronized(ctx, c, c.Barrier(ctx)); !errors.Is(err, refusal) {
			return fmt.Errorf("a refused operation returns %v", err)
		}
		refuse.Remove()
		refuse.Remove()
		pre.Remove()
		post.Remove()
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		want := []string{"pre barrier", "done barrier <nil>", "pre all_reduce", "done all_reduce <nil>", "pre barrier",
			"done barrier refused"}
		if !slices.Equal(log, want) {
			return fmt.Errorf("hooks saw %q, want %q", log, want)
		}
		return nil
	})
}

type object struct {
	Name  string
	Ranks []int
}

// Objects tests the collectives of Go values.
func Objects(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().NoOp {
				return nil
			}
			me := c.Rank()
			of := func(r int) object { return object{fmt.Sprintf("rank %d", r), make([]int, r*3)} }
			same := func(got object, r int) error {
				if got.Name != of(r).Name || len(got.Ranks) != 3*r {
					return fmt.Errorf("got %+v from rank %d", got, r)
				}
				return nil
			}
			for _, codec := range []comm.Codec{comm.Gob, comm.JSON} {
				o := comm.Objects{C: c, Codec: codec}
				all, err := comm.AllGather(ctx, o, of(me))
				if err != nil {
					return err
				}
				for r := range all {
					if err := same(all[r], r); err != nil {
						return err
					}
				}
				one, err := comm.Broadcast(ctx, o, of(me), n-1)
				if err != nil {
					return err
				}
				if err := same(one, n-1); err != nil {
					return err
				}
				gathered, err := comm.Gather(ctx, o, of(me), 0)
				if err != nil {
					return err
				}
				for r := range gathered {
					if err := same(gathered[r], r); err != nil {
						return err
					}
				}
				mine, err := comm.Scatter(ctx, o, all, 0)
				if err != nil {
					return err
				}
				if err := same(mine, me); err != nil {
					return err
				}
				if n > 1 && me == 0 {
					if err := comm.Send(ctx, o, of(0), 1); err != nil {
						return err
					}
				}
				if n > 1 && me == 1 {
					src := 0
					if c.Capabilities().AnySource {
						src = comm.AnySource
					}
					got, from, err := comm.Recv[object](ctx, o, src)
					if err != nil {
						return err
					}
					if err := same(got, from); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// RefusedObjects demands that an object which can't be encoded is an error on every rank that
// would have received it, at once, and changes nothing else.
func RefusedObjects(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().NoOp {
				return nil
			}
			me, o := c.Rank(), comm.Objects{C: c, Codec: comm.JSON}
			of := func(bad bool) any {
				if bad {
					return make(chan int)
				}
				return "good"
			}
			for culprit := range n {
				scattered := make([]any, n)
				for r := range scattered {
					scattered[r] = of(r == culprit)
				}
				for _, x := range []struct {
					what  string
					fails bool
					err   error
				}{
					{"all_gather", true, second(comm.AllGather(ctx, o, of(me == culprit)))},
					{"broadcast", true, second(comm.Broadcast(ctx, o, of(me == culprit), culprit))},
					{"gather", me == 0 || me == culprit, second(comm.Gather(ctx, o, of(me == culprit), 0))},
					{"scatter", true, second(comm.Scatter(ctx, o, scattered, n-1))},
					{"short scatter", true, second(comm.Scatter(ctx, o, scattered[1:], 0))},
				} {
					if errors.Is(x.err, comm.ErrInvalidArgument) != x.fails || x.err != nil && !x.fails {
						return fmt.Errorf("%s with a bad object of rank %d gives %v", x.what, culprit, x.err)
					}
				}
				if all, err := comm.AllGather(ctx, o, me); err != nil || len(all) != n || all[n-1] != n-1 {
					return fmt.Errorf("after a bad object of rank %d: %v, %v", culprit, all, err)
				}
			}
			return sumOfRanks(ctx, c)
		})
	}
}

// Memory tests the registration of memory.
func Memory(t *testing.T, cfg Config) {
	w := cfg.open(t, 2)
	w.each(func(ctx context.Context, c *comm.Comm) error {
		if c.Capabilities().NoOp {
			return nil
		}
		if err := c.Register(nil); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("a registration of nil gives %v", err)
		}
		x, err := c.Zeros(dtype.Float32, 1000)
		if err != nil {
			return err
		}
		switch err := c.Register(x); {
		case errors.Is(err, comm.ErrUnsupported):
			return nil
		case err != nil:
			return err
		}
		if err := c.Register(x); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("a second registration gives %v", err)
		}
		if err := c.Deregister(x); err != nil {
			return err
		}
		if err := c.Deregister(x); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("a second deregistration gives %v", err)
		}
		return sumOfRanks(ctx, c)
	})
}
