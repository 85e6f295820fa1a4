package comm_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// TestSubmit runs operations as values: results, what only a root passes, lists and splits.
func TestSubmit(t *testing.T) {
	comms := over("mem")(t, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		r := c.Rank()
		want := func(what string, got, want []int32) {
			if !slices.Equal(got, want) {
				t.Errorf("rank %d: %s: %v, want %v", r, what, got, want)
			}
		}
		x, y, z := []int32{int32(r), 10}, []int32{7, 7}, []int32{8, 8, 8, 8}
		op := &comm.Op{Kind: backend.AllReduce, In: tensor.Of(x), Out: tensor.Of(y), Reduce: comm.Sum,
			Hints: map[string]string{"algorithm": "ring"}}
		if err := c.Submit(op, nil); err != nil {
			return err
		}
		want("all_reduce", y, []int32{1, 20})
		if op.Seq == 0 || op.Algorithm != "ring" {
			t.Errorf("rank %d: results %d %q", r, op.Seq, op.Algorithm)
		}
		// Fields that a kind doesn't use change nothing.
		all := &comm.Op{Kind: backend.AllGatherSingle, In: tensor.Of(x), Out: tensor.Of(z),
			Ins: []*tensor.Tensor{tensor.Of([]float64{1})}, Root: 9, Peer: 9,
			Reduce: comm.PremulSum(3), InSplits: []int{5}}
		if err := c.Submit(all, nil); err != nil {
			return err
		}
		want("all_gather_single", z, []int32{0, 10, 1, 10})
		copy(z, []int32{8, 8, 8, 8})
		var w comm.Work
		gather := &comm.Op{Kind: backend.GatherSingle, In: tensor.Of(x), Out: tensor.Of(z), Root: 1}
		if err := c.Submit(gather, &w); err != nil {
			return err
		}
		if err := w.Wait(context.Background()); err != nil {
			return err
		}
		if gather.Seq <= op.Seq {
			t.Errorf("rank %d: asynchronous result %d after %d", r, gather.Seq, op.Seq)
		}
		want("gather_single", z, [][]int32{{8, 8, 8, 8}, {0, 10, 1, 10}}[r])
		// Rank 0 keeps one element and sends three; rank 1 sends two and keeps one.
		in, out := [][]int32{{1, 2, 3, 4}, {5, 6, 7}}[r], make([]int32, []int{3, 4}[r])
		if err := c.Submit(&comm.Op{Kind: backend.AllToAllVSingle, In: tensor.Of(in), Out: tensor.Of(out),
			InSplits: [][]int{{1, 3}, {2, 1}}[r], OutSplits: [][]int{{1, 2}, {3, 1}}[r]}, nil); err != nil {
			return err
		}
		want("all_to_all_v_single", out, [][]int32{{1, 5, 6}, {2, 3, 4, 7}}[r])
		// Without anything but a Work, and a method behind it.
		sum, async := tensor.Of([]int32{int32(r)}), comm.Work{}
		if err := c.Submit(&comm.Op{Kind: backend.AllReduce, In: sum, Out: sum, Reduce: comm.Sum,
			Ctx: context.Background()}, &async); err != nil {
			return err
		}
		if err := c.AllReduce(context.Background(), tensor.Of([]int32{1}), comm.Sum); err != nil {
			return err
		}
		if err := async.Wait(context.Background()); err != nil {
			return err
		}
		if !async.Completed() {
			t.Errorf("rank %d: the operation before is %v", r, async.Status())
		}
		if r == 0 {
			return c.Submit(&comm.Op{Kind: backend.Send, In: tensor.Of(x), Peer: 1, Tag: 3}, nil)
		}
		recv := &comm.Op{Kind: backend.Recv, Out: tensor.Of(x), Peer: comm.AnySource, Tag: 3, From: -1}
		if err := c.Submit(recv, nil); err != nil {
			return err
		}
		if recv.From != 0 {
			t.Errorf("the message came from %d", recv.From)
		}
		want("recv", x, []int32{0, 10})
		return nil
	})
	for _, kind := range []comm.Kind{0, backend.Kind(len(backend.Kinds()) + 1), 255} {
		if err := comms[0].Submit(&comm.Op{Kind: kind}, nil); !errors.Is(err, comm.ErrInvalidArgument) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	finalize(t, comms)
}

// impatient is a context that ends once it has been asked.
type impatient struct {
	context.Context
	cancel context.CancelFunc
	armed  atomic.Bool
}

func (p *impatient) Value(key any) any {
	if key == fabric.AsPoller {
		return p
	}
	return p.Context.Value(key)
}

func (p *impatient) Poll() error {
	if !p.armed.Load() {
		return nil
	}
	p.cancel()
	return p.Err()
}

// TestPolledWhileQueued gives up an operation that waits for its turn.
func TestPolledWhileQueued(t *testing.T) {
	comms := over("mem")(t, 2)
	var first comm.Work
	x := tensor.Of(make([]float32, 4))
	if err := comms[0].AllReduce(context.Background(), x, comm.Sum, comm.Async(&first),
		comm.Timeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &impatient{Context: ctx, cancel: cancel}
	done := make(chan error)
	go func() {
		done <- comms[0].Submit(&comm.Op{Kind: backend.Barrier, Ctx: p}, nil)
	}()
	p.armed.Store(true)
	if err := <-done; !errors.Is(err, comm.ErrAborted) && !errors.Is(err, comm.ErrCanceled) {
		t.Errorf("queued: %v", err)
	}
	comms[0].Abort(errors.New("over"))
	if err := first.Wait(context.Background()); !errors.Is(err, comm.ErrAborted) {
		t.Errorf("before it: %v", err)
	}
	finalize(t, comms)
}

// TestSubmitDoesNotAllocate counts the allocations of operations as values.
func TestSubmitDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	comms := over("shm")(t, 2)
	ops := map[*comm.Comm]*comm.Op{comms[0]: new(comm.Op), comms[1]: new(comm.Op)}
	round, stop := lockstep(t, comms, func(c *comm.Comm, x *tensor.Tensor) error {
		op := ops[c]
		*op = comm.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: comm.Sum}
		return c.Submit(op, nil)
	}, false, 2)
	for range 50 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
	stop()
	finalize(t, comms)
}
