package commtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// add enqueues x += y, a kernel.
func add(s *device.Stream, x, y *tensor.Tensor) error {
	n := x.NumEl()
	span := func(t *tensor.Tensor) device.Span {
		return device.Span{Ptr: device.Ptr(uintptr(t.Pointer())), Bytes: t.NBytes()}
	}
	if err := errors.Join(x.UsedBy(s), y.UsedBy(s)); err != nil {
		return err
	}
	defer runtime.KeepAlive([]*tensor.Tensor{x, y})
	return s.Launch("add", []device.Span{span(x), span(y)}, func(views []unsafe.Pointer) error {
		a, b := unsafe.Slice((*int64)(views[0]), n), unsafe.Slice((*int64)(views[1]), n)
		for i := range a {
			a[i] += b[i]
		}
		return nil
	})
}

// Graphs tests operations that are captured together with other work and replayed with changing data.
func Graphs(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			me := c.Rank()
			right, left := (me+1)%n, (me+n-1)%n
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			s := current(ctx, c)
			const size = 3000
			number := func(v int) *tensor.Tensor {
				return m.of(dtype.Int64, size, func(int) float64 { return float64(v) })
			}
			x, y, z, one := number(0), number(0), number(0), number(1)
			g, err := device.Capture(s, func() error {
				var sum, sent, received comm.Work
				return errors.Join(
					add(s, x, one),                                  // x+1
					c.AllReduce(ctx, x, comm.Sum),                   // the sum of all x+1
					c.AllReduce(ctx, y, comm.Max, comm.Async(&sum)), // beside the next
					add(s, x, x),                                    // twice that
					sum.Wait(ctx),                                   //
					add(s, y, x),                                    //
					c.Send(ctx, y, right, comm.Async(&sent)),        //
					c.Recv(ctx, z, left, comm.Async(&received)),     //
					sent.Wait(ctx),                                  //
					received.Wait(ctx),                              //
					c.Broadcast(ctx, z, n-1),                        // what n-1 got of n-2
				)
			})
			if err != nil {
				return err
			}
			for round := range 6 {
				if err := errors.Join(
					tensor.Copy(ctx, x, number(me+round)),
					tensor.Copy(ctx, y, number(10*me*round)),
					g.Replay(s),
				); err != nil {
					return err
				}
				sum := n*(n-1)/2 + n*(round+1)
				want := 2*sum + 10*(n-1)*round
				for what, t := range map[string]*tensor.Tensor{"y": y, "z": z} {
					if err := check(ctx, fmt.Sprintf("%s of round %d", what, round), t,
						func(int) float64 { return float64(want) }); err != nil {
						return err
					}
				}
				if round == 2 { // not of the graph
					if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
						return err
					}
				}
				if round == 3 { // settings apply to replays without a new capture
					if err := c.SetTimeout(29 * time.Second); err != nil {
						return err
					}
				}
			}
			// Replays one after the other, nothing between.
			if err := tensor.Copy(ctx, x, number(1)); err != nil {
				return err
			}
			want := 1
			for range 5 {
				if err := g.Replay(s); err != nil {
					return err
				}
				want = 2 * n * (want + 1)
			}
			if err := check(ctx, "x after replays", x, func(int) float64 { return float64(want) }); err != nil {
				return err
			}
			runtime.KeepAlive([]*tensor.Tensor{x, y, z, one}) // the graph's kernels have only their addresses
			return g.Close()
		})
	}
}
