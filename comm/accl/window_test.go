package accl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

const windowCount = 100_000

// puts makes a window of this rank's memory, puts this rank's numbers into the next one's, and returns how that went.
func puts(ctx context.Context, c *comm.Comm, mem *tensor.Tensor) (moved comm.Traffic, err error) {
	n, me := c.Size(), c.Rank()
	src := make([]int64, windowCount)
	for i := range src {
		src[i] = int64(me*1_000_000 + i)
	}
	w, err := c.NewWindow(ctx, mem)
	if err != nil {
		return moved, err
	}
	before := c.Traffic()
	if err := w.Put(ctx, tensor.Of(src), comm.Target{Rank: (me + 1) % n}); err != nil {
		return moved, err
	}
	after := c.Traffic()
	if err := errors.Join(w.Fence(ctx, -1), c.Barrier(ctx)); err != nil {
		return moved, err
	}
	got, err := tensor.Slice[int64](mem)
	for i := range got {
		if want := int64((me+n-1)%n*1_000_000 + i); err == nil && got[i] != want {
			err = fmt.Errorf("element %d is %d, not %d", i, got[i], want)
		}
	}
	moved = comm.Traffic{Mapped: after.Mapped - before.Mapped, Staged: after.Staged - before.Staged}
	return moved, errors.Join(err, w.Close(ctx))
}

// moves demands that a put goes to memory where it lies, or doesn't.
func moves(ctx context.Context, c *comm.Comm, mem *tensor.Tensor, want comm.Traffic) error {
	moved, err := puts(ctx, c, mem)
	if err == nil && moved != want {
		err = fmt.Errorf("it went as %+v, not %+v", moved, want)
	}
	return err
}

func mappable(c *comm.Comm) *tensor.Tensor { return tensor.Must(c.Zeros(dtype.Int64, windowCount)) }

// TestWindowsStaged has no engine reach the tensors: windows go by messages, into the tensors all the same.
func TestWindowsStaged(t *testing.T) {
	for _, network := range []string{"packets", "auto"} {
		comms, err := openWorld(Name, 2, map[string]string{"accl.p2p": "off", "accl.network": network})
		if err != nil {
			t.Fatal(err)
		}
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			return moves(ctx, c, mappable(c), comm.Traffic{Staged: 1})
		})
	}
}

// TestWindowsApart has the engines of several processes reach memory that other processes can map where it lies, and
// other memory by messages.
func TestWindowsApart(t *testing.T) {
	err := errors.Join(inProcesses(t, 2, func(ctx context.Context, st store.Store, rank, n int) error {
		c, err := openRank(ctx, Name, "windows", st, rank, n, map[string]string{"accl.network": "shm"})
		if err != nil {
			return err
		}
		if !c.Capabilities().SharedMem {
			return errors.New("no memory is shared")
		}
		err = moves(ctx, c, mappable(c), comm.Traffic{Mapped: 1})
		half, err2 := c.Split(ctx, []int{1, 0})
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		return errors.Join(moves(ctx, half, mappable(half), comm.Traffic{Mapped: 1}), half.Finalize(ctx),
			moves(ctx, c, tensor.Of(make([]int64, windowCount)), comm.Traffic{Staged: 1}), c.Finalize(ctx))
	})...)
	if err != nil {
		t.Error(err)
	}
}

// TestWindowDeadline has an engine that is at something else, so that it doesn't copy: the put ends at its deadline.
func TestWindowDeadline(t *testing.T) {
	comms, links := openTapped(t, "accl-busy", 2, 1)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		w, err := c.NewWindow(ctx, mappable(c))
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			<-c.Broken()
			return nil
		}
		d := (<-links).driver
		vain, err := d.Buffer(4, abi.Int32)
		if err != nil {
			return err
		}
		var r *accl.Request
		if err := d.Recv(ctx, vain, 4, 0, accl.Tag(9), accl.Async(&r)); err != nil {
			return err
		}
		err = w.Put(ctx, tensor.Of([]int64{1}), comm.Target{Rank: 0}, comm.Timeout(100*time.Millisecond))
		r.Drop() // the engine has word for the other rank to send
		<-r.Done()
		if late := (*comm.TimeoutError)(nil); !errors.As(err, &late) || late.Op != "put" {
			return fmt.Errorf("not a time-out: %v", err)
		}
		c.Abort(errors.New("enough"))
		return nil
	})
}
