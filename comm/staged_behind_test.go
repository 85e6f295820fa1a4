//go:build linux && (amd64 || arm64)

package comm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// An operation behind work that failed is left out, whatever it reads: the call says why, and ranks that wait for it
// are told.
func testStagedLeftOut(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	for name, run := range map[string]func(ctx context.Context, c *comm.Comm, x *tensor.Tensor, o comm.Option) error{
		"all_reduce": func(ctx context.Context, c *comm.Comm, x *tensor.Tensor, o comm.Option) error {
			return c.AllReduce(ctx, x, comm.Sum, o)
		},
		"broadcast": func(ctx context.Context, c *comm.Comm, x *tensor.Tensor, o comm.Option) error {
			return c.Broadcast(ctx, x, 1, o)
		},
		"scatter": func(ctx context.Context, c *comm.Comm, x *tensor.Tensor, o comm.Option) error {
			if c.Rank() == 0 {
				return c.Scatter(ctx, x, nil, 1, o)
			}
			y, err := filled(ctx, c.Stream(), 10, 1)
			if err != nil {
				return err
			}
			return c.Scatter(ctx, x, []*tensor.Tensor{y, y}, 1, o)
		},
		"barrier": func(ctx context.Context, c *comm.Comm, _ *tensor.Tensor, o comm.Option) error {
			return c.Barrier(ctx, o)
		},
		"recv": func(ctx context.Context, c *comm.Comm, x *tensor.Tensor, o comm.Option) error {
			if c.Rank() == 1 {
				return errors.New("boom, as if it were told")
			}
			return c.Recv(ctx, x, 1, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			comms := open(t, 2)
			boom, told := errors.New("boom"), make(chan struct{})
			defer runtime.KeepAlive(comms)
			eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
				x, err := filled(ctx, s, 10, 1)
				if err != nil {
					return err
				}
				if c.Rank() == 1 {
					<-told
					err := run(ctx, c, x, comm.Timeout(50*time.Millisecond))
					if root := name == "broadcast" || name == "scatter"; root && err == nil {
						return nil // which needn't wait for the others
					}
					if err == nil || !strings.Contains(err.Error(), "boom") {
						return fmt.Errorf("the other rank's failure gives %v", err)
					}
					return nil
				}
				defer close(told)
				if err := s.HostFunc("boom", func() error { return boom }); err != nil {
					return err
				}
				if err := s.Synchronize(ctx); !errors.Is(err, boom) {
					return fmt.Errorf("the function gives %v", err)
				}
				if err := run(ctx, c, x, comm.Timeout(time.Second)); !errors.Is(err, boom) {
					return fmt.Errorf("behind work that failed: %v", err)
				}
				if err := s.Recover(ctx); !errors.Is(err, boom) {
					return fmt.Errorf("the stream carries %v", err)
				}
				return nil
			})
		})
	}
}

// A barrier comes after the stream's work, too.
func testStagedBarrier(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 1)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		begun, gate := make(chan struct{}), make(chan struct{})
		defer c.RegisterPreHook(func(comm.OpInfo) error { close(begun); return nil }).Remove()
		if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
			return err
		}
		var w comm.Work
		err := c.Barrier(ctx, comm.Async(&w))
		select {
		case <-begun:
			err = errors.New("the barrier began before the stream's work was done")
		case <-time.After(20 * time.Millisecond):
		}
		close(gate)
		return errors.Join(err, w.Wait(ctx))
	})
}

// An error of a hook is the program's own, and messages of a batch that aren't posted keep no memory.
func testStagedUnposted(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 2)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		const n = 1 << 20
		var xs [3]*tensor.Tensor
		for i := range xs {
			var err error
			if xs[i], err = filled(ctx, s, n, 1); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			return c.Recv(ctx, xs[0], 0)
		}
		no, posted := errors.New("no"), 0
		hook := c.RegisterPreHook(func(comm.OpInfo) error {
			if posted++; posted == 2 {
				return no
			}
			return nil
		})
		b := c.Batch()
		for _, x := range xs {
			b.Send(x, 1)
		}
		var w comm.Work
		if err := b.Issue(ctx, comm.Async(&w)); err != nil {
			return err
		}
		if err := w.Wait(ctx); err != no {
			return fmt.Errorf("the batch gives %v", err)
		}
		hook.Remove()
		defer c.RegisterPreHook(func(comm.OpInfo) error { return no }).Remove()
		if err := c.Send(ctx, xs[0], 1); err != no {
			return fmt.Errorf("behind a hook that refuses it: %v", err)
		}
		xs[2].Free()
		z, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, n)
		if err == nil && z.Pointer() != xs[2].Pointer() {
			err = errors.New("the memory of a message that wasn't posted wasn't given back")
		}
		return err
	})
}

// A receive whose context ends is withdrawn, and takes no later message.
func testStagedWithdrawn(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms, withdrawn := open(t, 2), make(chan struct{})
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := filled(ctx, s, 10, float64(c.Rank()+1))
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-withdrawn
			return c.Send(ctx, x, 0)
		}
		defer close(withdrawn)
		given, cancel := context.WithCancel(ctx)
		defer cancel()
		var first, second comm.Work
		if err := c.Recv(given, x, 1, comm.Async(&first)); err != nil {
			return err
		}
		cancel()
		late, end := context.WithTimeout(ctx, 5*time.Second)
		defer end()
		if err := first.Wait(late); !errors.Is(err, comm.ErrCanceled) {
			return fmt.Errorf("the receive gives %v", err)
		}
		if err := c.Recv(ctx, x, 1, comm.Async(&second)); err != nil {
			return err
		}
		withdrawn <- struct{}{}
		return errors.Join(second.Wait(ctx), holds(ctx, x, 2))
	})
}

// Operations under way have no stream of their own, and ranks are told of a collective that never gets to the queue.
func TestStagedOnDevice(t *testing.T) {
	comms := onUntouchable(oneQueue(t))(t, 2)
	defer runtime.KeepAlive(comms)
	told := make(chan struct{})
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := filled(ctx, s, 10, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-told
			err := c.Barrier(ctx, comm.Timeout(50*time.Millisecond))
			if err == nil || !strings.Contains(err.Error(), "EventRecord") {
				return fmt.Errorf("the other rank's failure gives %v", err)
			}
			return nil
		}
		defer close(told)
		if !c.AwaitsStream(backend.Send) || c.AwaitsStream(backend.Recv) {
			return errors.New("sends wait for the stream's work in their call, and receives don't")
		}
		before := streams.Load()
		var works [10]comm.Work
		for i := range works {
			if err := c.Recv(ctx, x, 1, comm.Async(&works[i])); err != nil {
				return err
			}
		}
		if n := streams.Load() - before; n != 0 {
			return fmt.Errorf("%d receives under way made %d streams", len(works), n)
		}
		refused.Store(true)
		defer refused.Store(false)
		if err := c.Barrier(ctx); err == nil || !strings.Contains(err.Error(), "EventRecord") {
			return fmt.Errorf("a barrier of which there is no event gives %v", err)
		}
		return nil
	})
}
