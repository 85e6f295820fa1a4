package commtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// GraphsOfSeveral tests graphs with operations of several communicators on several streams, which nothing orders but
// the graph.
func GraphsOfSeveral(t *testing.T, cfg Config) {
	for _, n := range []int{2, 3} {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			me := c.Rank()
			all := make([]int, n)
			for i := range all {
				all[n-1-i] = i
			}
			backwards, err := c.Split(ctx, all)
			if err != nil {
				return err
			}
			var ends *comm.Comm // the first and the last rank
			group := []int{}
			if me == 0 || me == n-1 {
				group = []int{0, n - 1}
			}
			if ends, err = c.Split(ctx, group); err != nil {
				return err
			}
			s := current(ctx, c)
			side, err := s.Device().NewStream(device.Normal)
			if err != nil {
				return err
			}
			there := device.WithStream(ctx, side)
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			const size = 2000
			number := func(v int) *tensor.Tensor {
				return m.of(dtype.Int64, size, func(int) float64 { return float64(v) })
			}
			x, y, z := number(0), number(0), number(0)
			g, err := device.Capture(s, func() error {
				var sum, last comm.Work
				err := errors.Join(
					side.WaitStream(s),
					// Two communicators beside each other, a third one behind both.
					c.AllReduce(ctx, x, comm.Sum),
					add(s, x, x),
					backwards.AllReduce(there, y, comm.Max, comm.Async(&sum)),
					backwards.Broadcast(there, z, 0), // of rank n-1 of c
					sum.Wait(there),
					add(side, y, z),
					s.WaitStream(side),
				)
				if err == nil && ends != nil {
					err = errors.Join(ends.AllReduce(ctx, y, comm.Sum, comm.Async(&last)), last.Wait(ctx))
				}
				return errors.Join(err, c.Broadcast(ctx, y, 0))
			})
			if err != nil {
				return err
			}
			for round := range 8 {
				if err := errors.Join(
					tensor.Copy(ctx, x, number(me+round)),
					tensor.Copy(ctx, y, number(me*round)),
					tensor.Copy(ctx, z, number(100*me+round)),
					g.Replay(s),
				); err != nil {
					return err
				}
				for what, test := range map[string]struct {
					t    *tensor.Tensor
					want int
				}{
					"x": {x, 2 * (n*(n-1)/2 + n*round)},
					"y": {y, 2 * ((n-1)*round + 100*(n-1) + round)},
					"z": {z, 100*(n-1) + round},
				} {
					if err := check(ctx, fmt.Sprintf("%s of round %d", what, round), test.t,
						func(int) float64 { return float64(test.want) }); err != nil {
						return err
					}
				}
				if round == 3 { // not of the graph, on one of its communicators
					if err := errors.Join(backwards.AllReduce(there, z, comm.Sum), s.WaitStream(side)); err != nil {
						return err
					}
				}
			}
			runtime.KeepAlive([]*tensor.Tensor{x, y, z})
			err = errors.Join(g.Close(), synchronized(there, c, nil), side.Close(), backwards.Finalize(ctx))
			if ends != nil {
				err = errors.Join(err, ends.Finalize(ctx))
			}
			return err
		})
	}
}
