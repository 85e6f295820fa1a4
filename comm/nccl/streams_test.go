//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// world opens one over a stand-in of the newest level.
func world(t *testing.T, size int) []*comm.Comm {
	t.Helper()
	return open(t, "nccl", simulate(t, nccltest.Options{Version: levels[len(levels)-1]}), size)
}

// The time of an operation counts from when its stream gets there, and who doesn't come in time is named.
func TestTime(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		gate := make(chan struct{})
		if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
			return err
		}
		time.AfterFunc(300*time.Millisecond, func() { close(gate) })
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Timeout(150*time.Millisecond)); err != nil {
			return err
		}
		if err := s.Synchronize(ctx); err != nil {
			return fmt.Errorf("behind other work: %w", err)
		}
		if c.Rank() == 1 {
			<-c.Broken()
			if !errors.Is(c.Err(), comm.ErrTimeout) {
				return fmt.Errorf("broken by %v", c.Err())
			}
			return nil
		}
		// No call waits for it here, and still the timeout is found.
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Timeout(50*time.Millisecond)); err != nil {
			return err
		}
		<-c.Broken()
		var late *comm.TimeoutError
		if !errors.As(c.Err(), &late) || !slices.Equal(late.Missing, []int{1}) || late.Seq != 2 ||
			late.Elapsed < 50*time.Millisecond {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return s.Synchronize(ctx) // which ends, and carries nothing
	})
}

// A message that is never received breaks the communicator, too.
func TestOverdueMessage(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		if c.Rank() == 0 {
			var w comm.Work
			if err := c.Send(ctx, x, 1, comm.Async(&w), comm.Timeout(50*time.Millisecond)); err != nil {
				return err
			}
			<-w.Done()
			if w.Status() != comm.TimedOut {
				return fmt.Errorf("%v: %v", w.Status(), w.Err())
			}
		}
		<-c.Broken()
		var late *comm.TimeoutError
		if !errors.As(c.Err(), &late) || !slices.Equal(late.Missing, []int{1}) {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return nil
	})
}

// A batch is one piece of work, whose messages don't wait for each other.
func TestBatch(t *testing.T) {
	each(t, world(t, 3), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		var outs []*tensor.Tensor
		b := c.Batch()
		for r := range c.Size() {
			out := tensor.Must(tensor.EmptyOn(ctx, s.Device(), dtype.Int32, 100))
			outs = append(outs, out)
			if r%2 == c.Rank()%2 {
				b.Recv(out, r)
				b.Send(x, r)
			} else {
				b.Send(x, r)
				b.Recv(out, r)
			}
		}
		var w comm.Work
		if err := errors.Join(b.Issue(ctx, comm.Async(&w)), w.Wait(ctx)); err != nil {
			return err
		}
		for r, out := range outs {
			if got := tensor.Must(out.To(ctx, nil)); got.At(99) != 1 {
				return fmt.Errorf("from rank %d: %v", r, got)
			}
		}
		return nil
	})
}

// Hooks see what is enqueued when it is, may refuse it, and learn of its end; one that panics breaks the communicator.
func TestHooks(t *testing.T) {
	each(t, world(t, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		ended := make(chan string, 10)
		gate := make(chan struct{})
		var before []string
		pre := c.RegisterPreHook(func(o comm.OpInfo) error { before = append(before, o.Kind.String()); return nil })
		c.RegisterCompletionHook(func(o comm.OpInfo, err error) {
			ended <- fmt.Sprintf("%v %d %v %s %v", o.Kind, o.Seq, o.In == x, o.Algorithm, err)
		})
		if err := errors.Join(s.HostFunc("gate", func() error { <-gate; return nil }), c.AllReduce(ctx, x,
			comm.Sum)); err != nil {
			return err
		}
		if !slices.Equal(before, []string{"all_reduce"}) || len(ended) != 0 {
			return fmt.Errorf("%q, and %d have ended", before, len(ended))
		}
		close(gate)
		if got := <-ended; got != "all_reduce 1 true NCCL <nil>" {
			return fmt.Errorf("a hook saw %q", got)
		}
		pre.Remove()
		no := errors.New("no")
		refuse := c.RegisterPreHook(func(comm.OpInfo) error { return no })
		if err := c.Barrier(ctx); err != no {
			return fmt.Errorf("a refused operation gives %v", err)
		}
		if got := <-ended; !strings.HasPrefix(got, "barrier 0") || !strings.HasSuffix(got, "no") {
			return fmt.Errorf("a hook saw %q of a refused operation", got)
		}
		refuse.Remove()
		c.RegisterPreHook(func(comm.OpInfo) error { panic("on purpose") })
		var p *comm.PanicError
		if err := c.Barrier(ctx); !errors.As(err, &p) || p.Value != "on purpose" || c.Err() == nil {
			return fmt.Errorf("a hook that panics gives %v, and the communicator has %v", err, c.Err())
		}
		return nil
	})
}

// A tensor of another device than the communicator's is refused by a message that names both.
func TestWrongDevice(t *testing.T) {
	each(t, world(t, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		other, err := device.Get("accinte:1")
		if err != nil {
			return err
		}
		for name, y := range map[string]*tensor.Tensor{
			"accinte:1": tensor.Must(tensor.EmptyOn(context.Background(), other, dtype.Int32, 100)),
			"cpu":       tensor.Must(tensor.Empty(dtype.Int32, 100)),
		} {
			b := c.Batch()
			b.Send(y, 0)
			for what, err := range map[string]error{
				"collective": c.AllReduce(ctx, y, comm.Sum), "message": c.Send(ctx, y, 0), "batch": b.Issue(ctx),
			} {
				if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "on "+name+",") ||
					!strings.Contains(err.Error(), "accinte:0") {
					return fmt.Errorf("%s on %s: %v", what, name, err)
				}
			}
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Into(y)); !errors.Is(err, comm.ErrInvalidArgument) {
				return fmt.Errorf("from accinte:0 to %s: %v", name, err)
			}
		}
		return nil
	})
}

// The flight record knows what is enqueued, and whether its stream has come to it.
func TestRecord(t *testing.T) {
	dir, gate := t.TempDir(), make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(2)
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		err := errors.Join(c.AllReduce(ctx, x, comm.Sum), s.Synchronize(ctx))
		if c.Rank() == 1 {
			err = errors.Join(err, s.HostFunc("gate", func() error { <-gate; return nil }))
		}
		err = errors.Join(err, c.AllReduce(ctx, x, comm.Max))
		ready.Done()
		if ready.Wait(); c.Rank() == 0 {
			defer close(gate)
			const waits = "waiting: rank 0: all_reduce(int32[100], max) #2"
			const why = "rank 1: all_reduce(int32[100], max), to which its stream has not come yet"
			text := "" // what has begun and ended is recorded a moment later
			for err == nil && !(strings.Contains(text, waits) && strings.Contains(text, why)) {
				if err = ctx.Err(); err != nil {
					return errors.New(text)
				}
				_, err = record.DumpAll(dir)
				dumps, failed := observe.ReadDir(dir, 100)
				text, err = observe.Explain(dumps).String(), errors.Join(err, failed)
			}
		}
		return err
	})
}
