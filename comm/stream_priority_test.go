package comm_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
)

// busy is a device with one unit, on which kernels wait for each other.
type busy struct {
	drv *accinte.Driver
	dev *device.Device
}

// newBusy registers such a device under a name.
func newBusy(t *testing.T, name string) busy {
	t.Helper()
	drv, err := accinte.New(accinte.Options{Name: name, Devices: 1, MemoryBytes: 16 << 20, Units: 1})
	if err == nil {
		err = device.Register(name, drv)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Unregister(name); err != nil {
			t.Error(err)
		}
	})
	d, err := device.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return busy{drv, d}
}

// order lets kernels wait for the unit, on streams in turn, and returns the order in which they get it.
func (b busy) order(ctx context.Context, streams ...*device.Stream) (ran []int, err error) {
	gate := make(chan struct{})
	kernel := func(s *device.Stream, f func()) error {
		return s.Launch("kernel", nil, func([]unsafe.Pointer) error { f(); return nil })
	}
	holder, err := b.dev.NewStream(device.Normal)
	if err != nil {
		return nil, err
	}
	running := make(chan struct{})
	if err := kernel(holder, func() { close(running); <-gate }); err != nil {
		return nil, err
	}
	<-running
	for i, s := range streams {
		err = errors.Join(err, kernel(s, func() { ran = append(ran, i) })) // one at a time, so it needs no lock
		for b.drv.Waiting(0) != i+1 && err == nil {
			if err = ctx.Err(); err == nil {
				runtime.Gosched()
			}
		}
	}
	close(gate)
	for _, s := range append(streams, holder) {
		err = errors.Join(err, s.Synchronize(ctx))
	}
	return ran, errors.Join(err, holder.Close())
}

// The hint for streams of high priority, by both of its names, lets what is on the communicator's stream overtake what
// has waited longer. The children of a split are as their parent, unless they are told otherwise.
func TestHighPriorityStream(t *testing.T) {
	b := newBusy(t, "busyhints")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var others []*device.Stream
	for range 4 {
		s, err := b.dev.NewStream(device.Normal)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		others = append(others, s)
	}
	late, early := []int{0, 1, 2, 3, 4}, []int{4, 0, 1, 2, 3}
	check := func(what string, c *comm.Comm, want []int) {
		t.Helper()
		got, err := b.order(ctx, append(others, c.Stream())...)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: kernels ran in the order %v, %v, want %v", what, got, err, want)
		}
		x, err := c.Zeros(dtype.Float32, 10)
		var w comm.Work
		if err == nil {
			err = c.AllReduce(ctx, x, comm.Sum, comm.Async(&w))
		}
		if err == nil {
			err = w.Synchronize(ctx)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	const hint = "is_high_priority_stream"
	for _, test := range []struct {
		hints map[string]string
		want  []int
		child map[string]string
		then  []int
	}{
		{nil, late, nil, late},
		{map[string]string{hint: "true"}, early, nil, early},
		{map[string]string{hint: "1"}, early, map[string]string{hint: "false"}, late},
		{map[string]string{hint: "false"}, late, map[string]string{hint: "true"}, early},
	} {
		c, err := comm.New(ctx, comm.WithRank(0, 1), comm.WithDevice("busyhints"), comm.WithHints(test.hints))
		if err != nil {
			t.Fatal(err)
		}
		check("hints", c, test.want)
		var opts []comm.SplitOption
		if test.child != nil {
			opts = append(opts, comm.SplitHints(test.child))
		}
		child, err := c.Split(ctx, []int{0}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		check("hints of a split", child, test.then)
		if err := errors.Join(child.Finalize(ctx), c.Finalize(ctx)); err != nil {
			t.Error(err)
		}
	}
	if _, err := comm.New(ctx, comm.WithRank(0, 1), comm.WithDevice("busyhints"),
		comm.WithHints(map[string]string{hint: "maybe"})); !errors.Is(err, comm.ErrInvalidArgument) {
		t.Errorf("a hint that is neither true nor false: %v", err)
	}
}
