//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// groups are a stand-in's, of all ranks.
type groups struct{ begun, ended, calls atomic.Int32 }

// counted makes a stand-in whose groups are counted. fail says which of a rank's collectives fail, from 1.
func counted(t *testing.T, level string, fail func(rank int) bool) (*groups, string) {
	t.Helper()
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	g := &groups{}
	sim, err := nccltest.New(nccltest.Options{Version: level, Driver: rt.Driver(), Fail: func(call string,
		rank int) abi.Result {
		switch call {
		case "ncclAllReduce", "ncclAllGather", "ncclReduceScatter":
			if g.calls.Add(1); fail != nil && call == "ncclAllGather" && fail(rank) {
				return abi.InvalidArgument
			}
		}
		return abi.Success
	}})
	if err != nil {
		t.Fatal(err)
	}
	table := sim.Table()
	start, end := table.GroupStart, table.GroupEnd
	table.GroupStart = func() abi.Result { g.begun.Add(1); return start() }
	table.GroupEnd = func() abi.Result { g.ended.Add(1); return end() }
	place := "a counted stand-in for " + t.Name()
	if _, err := nccl.Supply("NCCL", place, table, "accinte"); err != nil {
		t.Fatal(err)
	}
	return g, place
}

// several are three collectives of x, which has 100 ones, and what they give.
func several(ctx context.Context, c *comm.Comm, x *tensor.Tensor) (b *comm.Batch, outs []*tensor.Tensor) {
	n := c.Size()
	sum := tensor.Must(tensor.EmptyOn(ctx, x.On(), dtype.Int32, 100))
	all := tensor.Must(tensor.EmptyOn(ctx, x.On(), dtype.Int32, 100*n))
	part := tensor.Must(tensor.EmptyOn(ctx, x.On(), dtype.Int32, 100/n))
	for _, t := range []*tensor.Tensor{sum, all, part} {
		_ = tensor.Fill(ctx, t, -1)
	}
	b = c.Batch()
	b.Add(&comm.Op{Kind: backend.AllReduce, In: x, Out: sum, Reduce: comm.Sum})
	b.Add(&comm.Op{Kind: backend.AllGatherSingle, In: x, Out: all})
	b.Add(&comm.Op{Kind: backend.ReduceScatterSingle, In: x, Out: part, Reduce: comm.Sum})
	return b, []*tensor.Tensor{sum, all, part}
}

// All collectives of a batch are one group of the library, synchronous, asynchronous and captured.
func TestGroup(t *testing.T) {
	for _, level := range []string{"2.18", "2.32"} {
		g, place := counted(t, level, nil)
		each(t, open(t, "nccl", place, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			for _, way := range []string{"synchronous", "asynchronous", "captured"} {
				b, outs := several(ctx, c, x)
				var err error
				switch way {
				case "synchronous":
					err = b.Issue(ctx)
				case "asynchronous":
					var w comm.Work
					err = errors.Join(b.Issue(ctx, comm.Async(&w)), w.Wait(ctx))
				default:
					var graph *device.Graph
					if graph, err = device.Capture(s, func() error { return b.Issue(ctx) }); err == nil {
						err = errors.Join(graph.Replay(s), s.Synchronize(ctx), graph.Close())
					}
				}
				if err = errors.Join(err, s.Synchronize(ctx)); err != nil {
					return fmt.Errorf("%s: %w", way, err)
				}
				for i, want := range []float64{2, 1, 2} {
					if got := tensor.Must(outs[i].To(ctx, nil)); got.At(0) != want || got.At(got.NumEl()-1) != want {
						return fmt.Errorf("%s: output %d is %v", way, i, got)
					}
				}
			}
			return nil
		})
		if begun, ended, calls := g.begun.Load(), g.ended.Load(), g.calls.Load(); begun != 6 || ended != 6 || calls != 18 {
			t.Errorf("2 ranks with 3 batches each begin %d groups and end %d, for %d calls", begun, ended, calls)
		}
	}
}

// A collective of a batch that the library refuses keeps the others from moving anything, and ends the group.
func TestGroupFails(t *testing.T) {
	var failing atomic.Bool
	g, place := counted(t, "2.32", func(int) bool { return failing.Load() })
	each(t, open(t, "nccl", place, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		for _, async := range []bool{false, true} {
			b, outs := several(ctx, c, x)
			var w comm.Work
			var opts []comm.Option
			if async {
				opts = append(opts, comm.Async(&w))
			}
			failing.Store(true)
			err := b.Issue(ctx, opts...)
			if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "ncclAllGather") {
				return fmt.Errorf("a batch that the library refuses gives %w", err)
			}
			if async && !errors.Is(w.Err(), comm.ErrInvalidArgument) {
				return fmt.Errorf("its Work has %w", w.Err())
			}
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
			for i, out := range outs {
				if got := tensor.Must(out.To(ctx, nil)); got.At(0) != -1 {
					return fmt.Errorf("output %d of a batch that was refused is %v", i, got)
				}
			}
		}
		if err := errors.Join(c.Barrier(ctx), s.Synchronize(ctx)); err != nil { // the communicator goes on
			return err
		}
		failing.Store(false)
		b, outs := several(ctx, c, x)
		if err := errors.Join(b.Issue(ctx), s.Synchronize(ctx)); err != nil {
			return err
		}
		if got := tensor.Must(outs[0].To(ctx, nil)); got.At(0) != 2 {
			return fmt.Errorf("after batches that were refused a sum is %v", got)
		}
		if begun, ended := g.begun.Load(), g.ended.Load(); begun != ended {
			return fmt.Errorf("%d groups have begun, and %d ended", begun, ended)
		}
		return nil
	})
}

// A batch is refused if one of its collectives uses what another one writes.
func TestGroupDepends(t *testing.T) {
	each(t, open(t, "nccl", simulate(t, nccltest.Options{Version: "2.32"}), 2), func(ctx context.Context, c *comm.Comm,
		s *device.Stream, x *tensor.Tensor) error {
		half := func(i int) *tensor.Tensor { return tensor.Must(x.Narrow(0, 50*i, 50)) }
		sum := func(in, out *tensor.Tensor) *comm.Op {
			return &comm.Op{Kind: backend.AllReduce, In: in, Out: out, Reduce: comm.Sum}
		}
		y := tensor.Must(tensor.EmptyOn(ctx, x.On(), dtype.Int32, 50))
		z := tensor.Must(tensor.EmptyOn(ctx, x.On(), dtype.Int32, 50))
		for name, ops := range map[string][]*comm.Op{
			"twice":                {sum(x, x), sum(x, x)},
			"a part of it":         {sum(half(0), y), sum(x, x)},
			"what another gives":   {sum(half(0), y), sum(half(1), half(1)), sum(y, z)},
			"into the same memory": {sum(half(0), y), sum(half(1), y)},
		} {
			b := c.Batch()
			for _, op := range ops {
				b.Add(op)
			}
			if err := b.Issue(ctx); !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "one of them writes it") {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		b := c.Batch()
		for _, op := range []*comm.Op{sum(half(0), half(0)), sum(half(1), y), sum(half(1), z)} {
			b.Add(op)
		}
		if err := errors.Join(b.Issue(ctx), s.Synchronize(ctx)); err != nil {
			return err
		}
		for i, t := range []*tensor.Tensor{half(0), y, z} {
			if got := tensor.Must(t.To(ctx, nil)); got.At(49) != 2 {
				return fmt.Errorf("output %d is %v", i, got)
			}
		}
		return nil
	})
}
