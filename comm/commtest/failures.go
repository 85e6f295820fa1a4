package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// InvalidArguments demands that bad calls are refused with *InvalidArgumentError,
// and that the communicator works as before.
func InvalidArguments(t *testing.T, cfg Config) {
	const n = 2
	w := cfg.open(t, n)
	w.each(func(ctx context.Context, c *comm.Comm) error {
		f := func(n int) *tensor.Tensor { return tensor.Must(tensor.Zeros(dtype.Float32, n)) }
		i32 := tensor.Must(tensor.Zeros(dtype.Int32, 4))
		strided := tensor.Must(tensor.Must(f(8).View(4, 2)).Select(1, 0))
		x := f(8)
		part := func(from, n int) *tensor.Tensor { return tensor.Must(x.Narrow(0, from, n)) }
		var work comm.Work
		for what, err := range map[string]error{
			"nil tensor":             c.AllReduce(ctx, nil, comm.Sum),
			"not contiguous":         c.AllReduce(ctx, strided, comm.Sum),
			"no reduction":           c.AllReduce(ctx, f(4), comm.Reduction{}),
			"bitwise on floats":      c.AllReduce(ctx, f(4), comm.BAnd),
			"premul on ints":         c.AllReduce(ctx, i32, comm.PremulSum(2)),
			"factor of two elements": c.AllReduce(ctx, f(4), comm.PremulSumTensor(f(2))),
			"factor of other dtype":  c.AllReduce(ctx, f(4), comm.PremulSumTensor(tensor.Of([]int32{1}))),
			"into other size":        c.AllReduce(ctx, f(4), comm.Sum, comm.Into(f(5))),
			"into other dtype":       c.AllReduce(ctx, f(4), comm.Sum, comm.Into(i32)),
			"into overlaps":          c.AllReduce(ctx, part(0, 4), comm.Sum, comm.Into(part(2, 4))),
			"into a broadcast":       c.Broadcast(ctx, f(4), 0, comm.Into(f(4))),
			"root too large":         c.Broadcast(ctx, f(4), n),
			"root negative":          c.Reduce(ctx, f(4), -1, comm.Sum),
			"short list":             c.AllGather(ctx, []*tensor.Tensor{f(4)}, f(4)),
			"nil in list":            c.AllGather(ctx, []*tensor.Tensor{f(4), nil}, f(4)),
			"uneven list":            c.AllGather(ctx, []*tensor.Tensor{f(4), f(5)}, f(4)),
			"outputs overlap":        c.AllGather(ctx, []*tensor.Tensor{part(0, 4), part(3, 4)}, f(4)),
			"output size":            c.AllGatherSingle(ctx, f(7), f(4)),
			"gathered over itself":   c.AllGatherSingle(ctx, x, part(2, 4)),
			"input size":             c.ReduceScatterSingle(ctx, f(4), f(9), comm.Sum),
			"own output size":        c.ReduceScatterV(ctx, f(3), []*tensor.Tensor{f(4), f(4)}, comm.Sum),
			"not divisible":          c.AllToAllSingle(ctx, f(5), f(5)),
			"all-to-all in place":    c.AllToAllSingle(ctx, x, x),
			"splits too long":        c.AllToAllVSingle(ctx, f(4), f(4), []int{3, 3}, []int{2, 2}),
			"splits negative":        c.AllToAllVSingle(ctx, f(4), f(4), []int{2, 2}, []int{-1, 2}),
			"splits missing":         c.AllToAllVSingle(ctx, f(4), f(4), nil, []int{2, 2}),
			"destination":            c.Send(ctx, f(4), n),
			"source":                 c.Recv(ctx, f(4), -2),
			"negative tag":           c.Send(ctx, f(4), 0, comm.Tag(-1)),
			"tag beyond all":         c.Recv(ctx, f(4), 0, comm.Tag(math.MaxInt)),
			"negative timeout":       c.Barrier(ctx, comm.Timeout(-1)),
			"unknown hint":           c.Barrier(ctx, comm.Hint("speed", "more")),
			"async and invalid":      c.Broadcast(ctx, nil, 0, comm.Async(&work)),
			"empty batch":            c.Batch().Issue(ctx),
			"split out of range":     second(c.Split(ctx, []int{0, 1, 2})),
			"split twice":            second(c.Split(ctx, []int{0, 1, 1})),
			"split without oneself":  second(c.Split(ctx, []int{1 - c.Rank()})),
			"zero timeout":           c.SetTimeout(0),
			"late hint":              c.SetHints(map[string]string{"fabric": "tcp"}),
		} {
			if !errors.Is(err, comm.ErrInvalidArgument) {
				return fmt.Errorf("%s gives %v", what, err)
			}
		}
		if c.Capabilities().Name == "native" {
			if err := synchronized(ctx, c, c.Barrier(ctx, comm.Algorithm("no-such"))); !errors.Is(err, comm.ErrInvalidArgument) {
				return fmt.Errorf("unknown algorithm gives %v", err)
			}
		}
		return sumOfRanks(ctx, c)
	})
}

func second[T any](_ T, err error) error { return err }

// Mismatches demands that ranks which call different things learn so, on every
// rank, with both sides stated, and that the communicator stays broken.
func Mismatches(t *testing.T, cfg Config) {
	type step = func(context.Context, *comm.Comm) issue
	reduce := func(dt dtype.DType, n int, r comm.Reduction) step {
		return func(ctx context.Context, c *comm.Comm) issue {
			x := zeros(ctx, c, dt, n)
			return func(opts ...comm.Option) error { return c.AllReduce(ctx, x, r, opts...) }
		}
	}
	bcast := func(n, root int) step {
		return func(ctx context.Context, c *comm.Comm) issue {
			x := zeros(ctx, c, dtype.Float32, n)
			return func(opts ...comm.Option) error { return c.Broadcast(ctx, x, root, opts...) }
		}
	}
	barrier := func(ctx context.Context, c *comm.Comm) issue {
		return func(opts ...comm.Option) error { return c.Barrier(ctx, opts...) }
	}
	// Of the last rank's elements there are more, as the root's list says, and it itself: its description differs from
	// those of the others, and the root's from all others'. Any two of these may be the first to be compared.
	uneven := func(ctx context.Context, c *comm.Comm) (list []*tensor.Tensor, own *tensor.Tensor) {
		last := c.Size() - 1
		for r := range c.Size() {
			list = append(list, zeros(ctx, c, dtype.Float32, 8+r/max(1, last)))
		}
		return list, zeros(ctx, c, dtype.Float32, 8+c.Rank()/max(1, last))
	}
	gather := func(ctx context.Context, c *comm.Comm) issue {
		list, own := uneven(ctx, c)
		return func(opts ...comm.Option) error { return c.Gather(ctx, list, own, 0, opts...) }
	}
	scatter := func(ctx context.Context, c *comm.Comm) issue {
		list, own := uneven(ctx, c)
		return func(opts ...comm.Option) error { return c.Scatter(ctx, own, list, 0, opts...) }
	}
	for i, x := range []struct {
		name       string
		most, last step
		say        []string
	}{
		{"dtype", reduce(dtype.Float32, 8, comm.Sum), reduce(dtype.Int32, 8, comm.Sum), []string{"float32", "int32"}},
		{"count", reduce(dtype.Float32, 8, comm.Sum), reduce(dtype.Float32, 9, comm.Sum), []string{"[8]", "[9]"}},
		{"large count", reduce(dtype.Float32, 80_000, comm.Sum), reduce(dtype.Float32, 90_000, comm.Sum), []string{"[80000]",
			"[90000]"}},
		{"reduction", reduce(dtype.Float32, 8, comm.Sum), reduce(dtype.Float32, 8, comm.Max), []string{"sum", "max"}},
		{"operation", reduce(dtype.Float32, 8, comm.Sum), barrier, []string{"all_reduce", "barrier"}},
		{"other operation", barrier, bcast(8, 0), []string{"barrier", "broadcast"}},
		{"root", bcast(8, 0), bcast(8, 1), []string{"root 0", "root 1"}},
		{"uneven gather", gather, gather, []string{"(float32[8], root 0", "[9]"}},
		{"uneven scatter", scatter, scatter, []string{"(float32[8], root 0", "[9]"}},
	} {
		for _, n := range cfg.worlds() {
			if n == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/world=%d", x.name, n), func(t *testing.T) {
				w := cfg.open(t, n)
				if w.noFailureReports() {
					return
				}
				w.each(func(ctx context.Context, c *comm.Comm) error {
					f := x.most
					if c.Rank() == n-1 {
						f = x.last
					}
					// A slow rank may learn of the mismatch while it's still in the operation before.
					err := sumOfRanks(ctx, c)
					if err == nil {
						err = cfg.wayOf(c, i+n).run(ctx, c, f(ctx, c))
					}
					if cfg.Uneven && strings.HasPrefix(x.name, "uneven") {
						return errors.Join(err, synchronous(ctx, c, barrier(ctx, c)))
					}
					for err == nil { // a rank that waits for no other learns at one of the next calls
						err = synchronous(ctx, c, barrier(ctx, c))
					}
					var mm *comm.MismatchError
					if !errors.As(err, &mm) {
						return fmt.Errorf("not a *MismatchError: %v", err)
					}
					for _, s := range x.say {
						if !strings.Contains(mm.OpA+" "+mm.OpB, s) {
							return fmt.Errorf("the error does not say %q: %v", s, err)
						}
					}
					if again := synchronous(ctx, c, barrier(ctx, c)); !errors.Is(again, comm.ErrMismatch) {
						return fmt.Errorf("after a mismatch a barrier gives %v", again)
					}
					return nil
				})
			})
		}
	}
}

// Timeouts demands that a missing rank is named, and that time-outs of messages leave the communicator whole.
func Timeouts(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		if n == 1 {
			continue
		}
		w := cfg.open(t, n)
		if w.noFailureReports() {
			return
		}
		w.each(func(ctx context.Context, c *comm.Comm) error {
			x := zeros(ctx, c, dtype.Float32, 10)
			for _, how := range cfg.ways(c) {
				err := how.run(ctx, c, func(opts ...comm.Option) error {
					return c.Recv(ctx, x, (c.Rank()+1)%n, append(opts, comm.Timeout(20*time.Millisecond))...)
				})
				if !errors.Is(err, comm.ErrTimeout) {
					return fmt.Errorf("a message that never comes, %s, gives %v", how.name, err)
				}
			}
			if c.Stream() == nil { // what is enqueued has its timeout alone
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				err := c.Recv(short, x, comm.AnySource)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("a receive whose context ends gives %v", err)
				}
			}
			if err := sumOfRanks(ctx, c); err != nil {
				return err
			}
			if c.Rank() == n-1 {
				<-c.Broken()
				return nil
			}
			how := cfg.wayOf(c, n)
			err := how.run(ctx, c, func(opts ...comm.Option) error {
				return c.AllReduce(ctx, x, comm.Sum, append(opts, comm.Timeout(200*time.Millisecond))...)
			})
			var to *comm.TimeoutError
			if !errors.As(err, &to) {
				return fmt.Errorf("%s: not a *TimeoutError: %v", how.name, err)
			}
			if !slices.Contains(to.Missing, n-1) || slices.Contains(to.Arrived, n-1) {
				return fmt.Errorf("missing is rank %d, but the error says: %v", n-1, err)
			}
			return nil
		})
	}
}

// Withdrawn has senders give up large messages at all moments: the receiver gets all of one, or
// learns from a typed error that it doesn't come, and the communicator stays whole. On a device, where contexts are for
// calls alone, timeouts make them give up.
func Withdrawn(t *testing.T, cfg Config) {
	const n, count = 2, 4 << 20
	w := cfg.open(t, n)
	if w.comms[0].Capabilities().NoOp {
		return
	}
	sent := make([]float32, count)
	for i := range sent {
		sent[i] = float32(i % 1000)
	}
	// It is over in most rounds, and more than all moments.
	patience := testutil.Pick(50*time.Millisecond, 200*time.Millisecond)
	w.each(func(ctx context.Context, c *comm.Comm) error {
		x := zeros(ctx, c, dtype.Float32, count)
		if err := tensor.Copy(ctx, x, tensor.Of(sent)); err != nil {
			return err
		}
		for round := range 8 {
			if err := synchronized(ctx, c, c.Barrier(ctx)); err != nil {
				return err
			}
			if c.Rank() == 0 {
				after, opts := time.Duration(round)*500*time.Microsecond, []comm.Option{comm.Tag(round)}
				short, cancel := context.WithCancel(ctx)
				if c.Stream() == nil {
					time.AfterFunc(after, cancel)
				} else {
					opts = append(opts, comm.Timeout(after+1))
				}
				err := synchronized(ctx, c, c.Send(short, x, 1, opts...))
				cancel()
				if err != nil && !errors.Is(err, comm.ErrCanceled) && !(c.Stream() != nil && errors.Is(err, comm.ErrTimeout)) {
					return fmt.Errorf("round %d: a send that is given up gives %v", round, err)
				}
				continue
			}
			into := zeros(ctx, c, dtype.Float32, count)
			switch err := synchronized(ctx, c, c.Recv(ctx, into, 0, comm.Tag(round), comm.Timeout(patience))); {
			case err == nil:
				got := make([]float32, count)
				if err := tensor.Copy(ctx, tensor.Of(got), into); err != nil {
					return err
				}
				if !slices.Equal(got, sent) {
					return fmt.Errorf("round %d: a part of the message is missing", round)
				}
			case !errors.Is(err, comm.ErrAborted) && !errors.Is(err, comm.ErrTimeout):
				return fmt.Errorf("round %d: a message that is withdrawn gives %v", round, err)
			}
		}
		return sumOfRanks(ctx, c)
	})
}

// Leaving demands that operations end which a rank took part in that then finalizes, and
// that the others' next one fails and names it: by its timeout at the latest.
func Leaving(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		if n == 1 {
			continue
		}
		w := cfg.open(t, n)
		if w.noFailureReports() {
			return
		}
		count := []int{10, 100_000}[n%2]
		arrive, wait := w.meeting() // a rank that's in the next operation breaks the communicator for those that aren't yet
		w.each(func(ctx context.Context, c *comm.Comm) error {
			through := sync.OnceFunc(arrive)
			defer through()
			x := zeros(ctx, c, dtype.Float32, count)
			how := cfg.wayOf(c, n)
			if err := how.run(ctx, c,
				func(opts ...comm.Option) error { return c.AllReduce(ctx, x, comm.Sum, opts...) }); err != nil {
				return err
			}
			if through(); c.Rank() == n-1 {
				return c.Finalize(ctx)
			}
			wait()
			native := c.Capabilities().Name == "native" // doesn't need the timeout
			err := how.run(ctx, c, func(opts ...comm.Option) error {
				if !native {
					opts = append(opts, comm.Timeout(200*time.Millisecond))
				}
				return c.AllReduce(ctx, x, comm.Sum, opts...)
			})
			var lost *comm.PeerLostError
			var to *comm.TimeoutError
			if (!errors.As(err, &lost) || lost.Peer != n-1) && (native || !errors.As(err, &to) || !slices.Contains(to.Missing,
				n-1)) {
				return fmt.Errorf("rank %d has finalized, and an operation, %s, gives %v", n-1, how.name, err)
			}
			return nil
		})
	}
}

// Abort demands that one rank's Abort ends every rank's waiting, with its reason.
func Abort(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		if w.noFailureReports() {
			return
		}
		arrive, wait := w.meeting() // the abort comes when every rank has finished the operations before
		w.each(func(ctx context.Context, c *comm.Comm) error {
			through := sync.OnceFunc(arrive)
			defer through()
			if err := sumOfRanks(ctx, c); err != nil {
				return err
			}
			told := make(chan error, 1)
			c.RegisterAbortHook(func(err error) { told <- err })
			var recv comm.Work
			if err := c.Recv(ctx, zeros(ctx, c, dtype.Int32, 4), c.Rank(), comm.Async(&recv)); err != nil {
				return err
			}
			through()
			if c.Rank() == 0 {
				wait()
				time.AfterFunc(20*time.Millisecond, func() { c.Abort(errors.New("enough")) })
				<-c.Broken()
			}
			barrier := func(opts ...comm.Option) error { return c.Barrier(ctx, opts...) }
			how := cfg.wayOf(c, n)
			err := how.run(ctx, c, barrier)
			for err == nil && n == 1 {
				err = how.run(ctx, c, barrier)
			}
			var ab *comm.AbortedError
			if !errors.As(err, &ab) || ab.By != 0 || !strings.Contains(ab.Reason, "enough") {
				return fmt.Errorf("an aborted barrier, %s, gives %v", how.name, err)
			}
			if err := recv.Synchronize(ctx); !errors.Is(err, comm.ErrAborted) {
				return fmt.Errorf("an aborted receive gives %v", err)
			}
			select {
			case err := <-told:
				if !errors.Is(err, comm.ErrAborted) {
					return fmt.Errorf("the abort hook got %v", err)
				}
			case <-ctx.Done():
				return errors.New("the abort hook did not run")
			}
			return nil
		})
	}
}

// Lifecycle tests options, timeouts and hints that change, and the end.
func Lifecycle(t *testing.T, cfg Config) {
	w := cfg.open(t, 2)
	w.each(func(ctx context.Context, c *comm.Comm) error {
		if err := c.SetTimeout(7 * time.Second); err != nil {
			return err
		}
		if got := c.Options().Timeout; got != 7*time.Second {
			return fmt.Errorf("timeout is %v", got)
		}
		if err := sumOfRanks(ctx, c); err != nil {
			return err
		}
		if c.Size() != 2 || c.Name() == "" || c.Backend() == "" {
			return fmt.Errorf("size %d, name %q, backend %q", c.Size(), c.Name(), c.Backend())
		}
		if err := c.Finalize(ctx); err != nil {
			return err
		}
		if err := c.Finalize(ctx); !errors.Is(err, comm.ErrFinalized) {
			return fmt.Errorf("a second Finalize gives %v", err)
		}
		if err := c.Barrier(ctx); !errors.Is(err, comm.ErrFinalized) {
			return fmt.Errorf("a barrier after Finalize gives %v", err)
		}
		if _, err := c.Split(ctx, []int{0, 1}); !errors.Is(err, comm.ErrFinalized) {
			return fmt.Errorf("a split after Finalize gives %v", err)
		}
		return nil
	})
}
