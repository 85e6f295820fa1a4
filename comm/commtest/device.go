package commtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// ownStream gives a rank on a device a current stream that it shares with no other rank of the process. On a shared
// stream, a rank's work could wait for work of another rank that is queued behind it. done waits for the stream's
// work and returns its error.
func ownStream(ctx context.Context, c *comm.Comm) (_ context.Context, done func() error, err error) {
	if c.Stream() == nil {
		return ctx, func() error { return nil }, nil
	}
	s, err := c.Stream().Device().NewStream(device.Normal)
	if err != nil {
		return nil, nil, err
	}
	return device.WithStream(ctx, s), func() error { return errors.Join(s.Recover(ctx), s.Close()) }, nil
}

// synchronized waits for what err is the result of: on a device, for the current stream, whose error it takes.
func synchronized(ctx context.Context, c *comm.Comm, err error) error {
	if err != nil || c.Stream() == nil {
		return err
	}
	return failure(c, current(ctx, c).Recover(ctx))
}

// failure is what an operation on a stream has ended with that carries err. Streams that a vendor's library works on
// may carry nothing, so that what the communicator is broken by is all there is.
func failure(c *comm.Comm, err error) error {
	if c.Capabilities().Name != "native" && !errors.As(err, new(interface{ At() comm.Where })) && c.Err() != nil {
		return c.Err()
	}
	return err
}

func current(ctx context.Context, c *comm.Comm) *device.Stream {
	s, err := c.Stream().Device().CurrentStream(ctx)
	if err != nil {
		panic(err) // of a device whose default stream can't be made
	}
	return s
}

// Streams tests in what order operations on a device are with other work.
func Streams(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			s := current(ctx, c)
			x := m.of(dtype.Int64, 1000, func(int) float64 { return 1 })
			copied := m.poisoned(dtype.Int64, 1000)
			dropped := []*tensor.Tensor{m.of(dtype.Float32, 5000, func(int) float64 { return 2 })}
			freed := m.of(dtype.Float32, 5000, func(int) float64 { return 3 })
			// Nothing runs before the stream gets there, and nothing waits for it meanwhile.
			open := make(chan struct{})
			if err := s.HostFunc("gate", func() error { <-open; return nil }); err != nil {
				return err
			}
			var w comm.Work
			if err := errors.Join(c.AllReduce(ctx, x, comm.Sum), c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)),
				c.Barrier(ctx)); err != nil {
				return err
			}
			if st := w.Status(); st != comm.NotStarted {
				return fmt.Errorf("behind a closed gate the operation is %v", st)
			}
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			if err := w.Synchronize(short); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("synchronizing behind a closed gate gives %v", err)
			}
			// Another stream that waits for the Work comes after it, the host doesn't wait.
			other, err := s.Device().NewStream(device.Normal)
			if err != nil {
				return err
			}
			defer other.Close()
			there := device.WithStream(ctx, other)
			if err := w.Wait(there); err != nil {
				return err
			}
			if err := tensor.Copy(there, copied, x); err != nil {
				return err
			}
			// A tensor that is dropped is there until its operation is done.
			if err := c.AllReduce(ctx, dropped[0], comm.Sum, comm.Async(new(comm.Work))); err != nil {
				return err
			}
			dropped[0] = nil
			runtime.GC()
			if err := c.AllReduce(ctx, freed, comm.Sum, comm.Async(new(comm.Work))); err != nil {
				return err
			}
			freed.Free()
			close(open)
			if err := check(there, "a copy of two sums", copied, func(int) float64 { return float64(n * n) }); err != nil {
				return err
			}
			if err := check(there, "two sums", x, func(int) float64 { return float64(n * n) }); err != nil {
				return err
			}
			if err := w.Synchronize(ctx); err != nil || w.Status() != comm.Completed {
				return fmt.Errorf("status %v, error %v", w.Status(), err)
			}
			// Operations of one communicator are in the order of their calls, whatever streams they are on.
			for k := range 20 {
				on := ctx
				if k%2 == 1 {
					on = there
				}
				var opts []comm.Option
				if k%3 == 2 {
					opts = []comm.Option{comm.Async(new(comm.Work))}
				}
				if err := c.Broadcast(on, m.of(dtype.Int32, 10+k, func(int) float64 { return 1 }), k%n, opts...); err != nil {
					return err
				}
			}
			return errors.Join(other.Synchronize(ctx), synchronized(ctx, c, c.Barrier(ctx)))
		})
	}
}

// StreamFailures tests that every wait for a stream on which an operation failed returns the error,
// and that it stays.
func StreamFailures(t *testing.T, cfg Config) {
	t.Run("Timeout", func(t *testing.T) {
		w := cfg.open(t, 2)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			x := (&maker{ctx: ctx, c: c}).of(dtype.Float32, 10, func(int) float64 { return 1 })
			if c.Rank() == 1 {
				<-c.Broken()
				if err := c.AllReduce(ctx, x, comm.Sum); !errors.Is(err, comm.ErrTimeout) {
					return fmt.Errorf("a broken communicator gives %v", err)
				}
				return nil
			}
			var w comm.Work
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w), comm.Timeout(50*time.Millisecond)); err != nil {
				return err
			}
			var late *comm.TimeoutError
			for range 2 { // it stays
				if err := w.Synchronize(ctx); !errors.As(err, &late) || len(late.Missing)+len(late.Unknown) == 0 {
					return fmt.Errorf("synchronizing gives %v", err)
				}
			}
			if err := w.Wait(ctx); !errors.Is(err, comm.ErrTimeout) || w.Status() != comm.TimedOut {
				return fmt.Errorf("waiting gives %v, the status is %v", err, w.Status())
			}
			if err := failure(c, c.Stream().Recover(ctx)); !errors.Is(err, comm.ErrTimeout) {
				return fmt.Errorf("the stream carries %v", err)
			}
			if err := c.AllReduce(ctx, x, comm.Sum); !errors.Is(err, comm.ErrTimeout) {
				return fmt.Errorf("afterwards an operation gives %v", err)
			}
			return nil
		})
	})
	t.Run("LeftOut", func(t *testing.T) { // an operation behind work that failed is left out, and its Work says why
		w := cfg.open(t, 1)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			boom := errors.New("boom")
			s := current(ctx, c)
			if err := s.HostFunc("boom", func() error { return boom }); err != nil {
				return err
			}
			var w comm.Work
			x := (&maker{ctx: ctx, c: c}).empty(dtype.Float32, 10)
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			<-w.Done()
			if err := w.Err(); !errors.Is(err, boom) {
				return fmt.Errorf("the Work says %v", err)
			}
			if err := c.Stream().Recover(ctx); !errors.Is(err, boom) {
				return fmt.Errorf("the communicator's stream carries %v", err)
			}
			if err := s.Recover(ctx); !errors.Is(err, boom) {
				return fmt.Errorf("the stream carries %v", err)
			}
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			return w.Synchronize(ctx)
		})
	})
	if !slices.Contains(cfg.Skip, "Replays") {
		t.Run("Replays", replays(cfg))
	}
	t.Run("WrongPlace", func(t *testing.T) {
		w := cfg.open(t, 1)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			here := (&maker{ctx: ctx, c: c}).empty(dtype.Float32, 10)
			host := tensor.Must(tensor.Zeros(dtype.Float32, 10))
			if err := c.AllReduce(ctx, here, comm.Sum, comm.Into(host)); !errors.Is(err, comm.ErrInvalidArgument) {
				return fmt.Errorf("from a device to the host: %v", err)
			}
			caps := c.Capabilities()
			switch err := c.AllReduce(ctx, host, comm.Sum); {
			case !caps.Serves(device.Host):
				if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "on cpu") ||
					!strings.Contains(err.Error(), c.Device()) {
					return fmt.Errorf("on the host: %v", err)
				}
			case err != nil:
				return fmt.Errorf("on the host: %w", err)
			}
			return nil
		})
	})
}

// replays tests that hooks run at each replay, and that timeouts and hints which change apply to the next without a new
// capture.
func replays(cfg Config) func(t *testing.T) {
	return func(t *testing.T) {
		w := cfg.open(t, 2)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			s := current(ctx, c)
			x := (&maker{ctx: ctx, c: c}).of(dtype.Int64, 5000, func(int) float64 { return 1 })
			g, err := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Sum) })
			if err != nil {
				return err
			}
			var before int
			var algorithms []string // hooks run on the stream, which the host waits for before it looks
			c.RegisterPreHook(func(o comm.OpInfo) error {
				if o.In == x {
					before++
				}
				return nil
			})
			c.RegisterCompletionHook(func(o comm.OpInfo, err error) {
				if err == nil {
					algorithms = append(algorithms, o.Algorithm)
				}
			})
			var tried int
			var want []string
			for _, a := range plan.Algorithms(plan.AllReduce) {
				if c.Capabilities().Name != "native" {
					break
				}
				if err := c.SetHints(map[string]string{"algorithm": a.Name}); err != nil {
					return err
				}
				tried++
				switch err := synchronized(ctx, c, g.Replay(s)); {
				case err == nil:
					want = append(want, a.Name)
				case !errors.Is(err, comm.ErrInvalidArgument): // it isn't for this machine
					return fmt.Errorf("replayed with algorithm %s: %w", a.Name, err)
				}
			}
			if before != tried || !slices.Equal(algorithms, want) || tried > 0 && len(want) < 2 {
				return fmt.Errorf("hooks saw %d of %d replays, with algorithms %q, want %q", before, tried, algorithms, want)
			}
			if err := errors.Join(c.SetHints(nil), synchronized(ctx, c, c.Barrier(ctx))); err != nil {
				return err
			}
			if c.Rank() == 1 {
				<-c.Broken()
				return g.Close()
			}
			if err := c.SetTimeout(50 * time.Millisecond); err != nil {
				return err
			}
			if err := synchronized(ctx, c, g.Replay(s)); !errors.Is(err, comm.ErrTimeout) {
				return fmt.Errorf("a replay that rank 1 doesn't take part in gives %v", err)
			}
			return g.Close()
		})
	}
}
