package commtest

import (
	"context"
	"errors"
	"slices"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// issue calls one operation of a communicator with further options.
type issue func(opts ...comm.Option) error

// A way is how an operation is called. run returns the operation's error, whether the call, the Work or the stream has
// it, and clears that of the streams.
type way struct {
	name string
	run  func(ctx context.Context, c *comm.Comm, f issue) error
}

// ways returns the ways that there are for a communicator: failures must be the same in all. Ranks may differ in
// theirs.
func (cfg Config) ways(c *comm.Comm) []way {
	all := []way{{"synchronous", synchronous}, {"asynchronous", asynchronous}}
	if c.Stream() != nil {
		all = append(all, way{"replayed", replayed}, way{"asynchronous and replayed", replayedAsynchronous})
	}
	return slices.DeleteFunc(all, func(w way) bool { return slices.Contains(cfg.Skip, w.name) })
}

// wayOf chooses a way for rank r in the k-th trial, so that the ways meet each other.
func (cfg Config) wayOf(c *comm.Comm, k int) way {
	all := cfg.ways(c)
	return all[(k+c.Rank())%len(all)]
}

func synchronous(ctx context.Context, c *comm.Comm, f issue) error { return synchronized(ctx, c, f()) }

func asynchronous(ctx context.Context, c *comm.Comm, f issue) error {
	var w comm.Work
	if err := f(comm.Async(&w)); err != nil {
		return err
	}
	err := w.Synchronize(ctx)
	if err != nil && ctx.Err() == nil && w.Err() == nil {
		return errors.Join(errors.New("what Synchronize returns Err doesn't have"), err)
	}
	if s := c.Stream(); s != nil {
		_ = s.Recover(ctx) // it carries the same
	}
	return err
}

func replayed(ctx context.Context, c *comm.Comm, f issue) error {
	s := current(ctx, c)
	g, err := device.Capture(s, func() error { return f() })
	if err != nil {
		return err
	}
	return errors.Join(synchronized(ctx, c, g.Replay(s)), g.Close())
}

func replayedAsynchronous(ctx context.Context, c *comm.Comm, f issue) error {
	return replayed(ctx, c, func(...comm.Option) error {
		var w comm.Work
		return errors.Join(f(comm.Async(&w)), w.Wait(ctx))
	})
}

// zeros makes n zeros where the communicator's tensors are.
func zeros(ctx context.Context, c *comm.Comm, dt dtype.DType, n int) *tensor.Tensor {
	return (&maker{ctx: ctx, c: c}).of(dt, n, func(int) float64 { return 0 })
}
