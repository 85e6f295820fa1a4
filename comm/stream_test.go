package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// onAccInte opens a world of communicators for one device each, in turn of the two that there are.
func onAccInte(fabric string) func(t testing.TB, size int) []*comm.Comm {
	return func(t testing.TB, size int) []*comm.Comm {
		return open(t, size, func(r int) []comm.NewOption {
			return []comm.NewOption{comm.WithFabric(fabric), comm.WithDevice(fmt.Sprintf("accinte:%d", r%2))}
		})
	}
}

// eachOn runs f for every rank at once, with a stream of its own as the current one.
func eachOn(t *testing.T, comms []*comm.Comm, f func(ctx context.Context, c *comm.Comm, s *device.Stream) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			s, err := c.Stream().Device().NewStream(device.Normal)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := f(device.WithStream(context.Background(), s), c, s); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
}

func finalizeAll(t *testing.T, comms []*comm.Comm) {
	t.Helper()
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, _ *device.Stream) error { return c.Finalize(ctx) })
}

func numbers(ctx context.Context, c *comm.Comm, n int, v float64) (*tensor.Tensor, error) {
	x, err := tensor.EmptyOn(ctx, c.Stream().Device(), dtype.Float32, n)
	if err != nil {
		return nil, err
	}
	return x, tensor.Fill(ctx, x, v)
}

func holds(ctx context.Context, x *tensor.Tensor, v float64) error {
	host, err := x.To(ctx, nil)
	if err != nil {
		return err
	}
	for i := range host.NumEl() {
		if host.At(i) != v {
			return fmt.Errorf("element %d is %v, want %v", i, host.At(i), v)
		}
	}
	return nil
}

// A synchronous operation comes in the order of the current stream, an asynchronous one when Wait says so.
func TestCollectivesAreInStreamOrder(t *testing.T) {
	comms := onAccInte("shm")(t, 3)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := numbers(ctx, c, 1000, float64(c.Rank()))
		if err != nil {
			return err
		}
		gate := make(chan struct{})
		if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
			return err
		}
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil { // returns although nothing can have run
			return err
		}
		var w comm.Work
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
			return err
		}
		if w.Completed() {
			return errors.New("the operation is done before its input is")
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		close(gate)
		if err := holds(ctx, x, 9); err != nil {
			return err
		}
		if err := w.Synchronize(ctx); err != nil {
			return err
		}
		if !w.Completed() {
			return errors.New("synchronized, not completed")
		}
		return nil
	})
}

// Large collectives on device memory work in place: nothing is staged.
func TestDeviceMemoryIsNotStaged(t *testing.T) {
	for _, n := range []int{2, 3} {
		comms := onAccInte("shm")(t, n)
		eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
			x, err := numbers(ctx, c, 1<<20, 1)
			if err != nil {
				return err
			}
			for range 5 {
				if err := c.AllReduce(ctx, x, comm.Avg); err != nil {
					return err
				}
			}
			if err := holds(ctx, x, 1); err != nil {
				return err
			}
			if got := c.Traffic(); got.Mapped != 5 || got.Staged != 0 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		finalizeAll(t, comms)
	}
}

func TestConformanceAccInteMem(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: onAccInte("mem"), Shared: true, Device: true, Worlds: suiteWorlds})
}
func TestConformanceAccInteSHM(t *testing.T) {
	testutil.SkipIfShort(t)
	commtest.Run(t, commtest.Config{Open: onAccInte("shm"), Shared: true, Device: true})
}
func TestConformanceAccInteTCP(t *testing.T) {
	testutil.SkipIfShort(t)
	commtest.Run(t, commtest.Config{Open: onAccInte("tcp"), Shared: true, Device: true})
}

// Communicators of the host are bound to devices: each by itself, beside operations, and in the order of the calls.
func TestBind(t *testing.T) {
	comms := open(t, 2, func(int) []comm.NewOption { return []comm.NewOption{comm.WithFabric("shm")} })
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			if err := bound(t.Context(), c, fmt.Sprintf("accinte:%d", r)); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

// A communicator without a world is bound to a device, which it has in its world.
func TestBindWithoutWorld(t *testing.T) {
	c, err := comm.New(t.Context(), comm.WithoutWorld())
	if err != nil {
		t.Fatal(err)
	}
	d, err := device.Get("accinte:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Bind(d), c.Bind(d)); err != nil || c.Device() != "accinte:1" {
		t.Fatalf("bound to %s: %v", c.Device(), err)
	}
	other, err := device.Get("accinte:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Bind(other); !errors.Is(err, comm.ErrInvalidArgument) {
		t.Errorf("bound to another device: %v", err)
	}
	x := tensor.Must(tensor.ZerosOn(t.Context(), d, dtype.Float32, 4))
	if err := c.AllReduce(t.Context(), x, comm.Sum); !errors.Is(err, comm.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), "no world yet") {
		t.Errorf("an operation without a world: %v", err)
	}
	withoutWorld(t, c)
	handle, err := c.Handle()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.Reconfigure(t.Context(), "bound", []string{handle})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.AllReduce(t.Context(), x, comm.Sum); err != nil || in.Device() != "accinte:1" {
		t.Errorf("in its world it's for %s: %v", in.Device(), err)
	}
	if err := in.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
}

// withoutWorld tries all that a communicator needs a world for.
func withoutWorld(t *testing.T, c *comm.Comm) {
	t.Helper()
	ctx, x, y := t.Context(), tensor.Of([]float32{1, 2}), tensor.Of([]float32{0, 0})
	list := []*tensor.Tensor{y}
	split := func(ranks ...int) error {
		_, err := c.Split(ctx, ranks)
		return err
	}
	for name, call := range map[string]func() error{
		"all_gather_single":     func() error { return c.AllGatherSingle(ctx, y, x) },
		"all_to_all_single":     func() error { return c.AllToAllSingle(ctx, y, x) },
		"reduce_scatter_single": func() error { return c.ReduceScatterSingle(ctx, y, x, comm.Sum) },
		"all_gather":            func() error { return c.AllGather(ctx, list, x) },
		"all_to_all":            func() error { return c.AllToAll(ctx, list, []*tensor.Tensor{x}) },
		"broadcast":             func() error { return c.Broadcast(ctx, x, 0) },
		"scan":                  func() error { return c.Scan(ctx, x, comm.Sum) },
		"send":                  func() error { return c.Send(ctx, x, 0) },
		"recv":                  func() error { return c.Recv(ctx, x, comm.AnySource) },
		"split":                 func() error { return split(0) },
		"split of none":         func() error { return split() },
		"new_window":            func() error { _, err := c.NewWindow(ctx, x); return err },
	} {
		if err := call(); !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "no world yet") {
			t.Errorf("%s without a world: %v", name, err)
		}
	}
}

func bound(ctx context.Context, c *comm.Comm, name string) error {
	x, err := c.Zeros(dtype.Float32, 1<<18)
	if err != nil {
		return err
	}
	var w comm.Work
	if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
		return err
	}
	d, err := device.Get(name)
	if err != nil {
		return err
	}
	other, err := device.Get(map[string]string{"accinte:0": "accinte:1", "accinte:1": "accinte:0"}[name])
	if err != nil {
		return err
	}
	on := tensor.Must(tensor.ZerosOn(ctx, d, dtype.Float32, 1<<18))
	if err := c.AllReduce(ctx, on, comm.Sum); !errors.Is(err, comm.ErrInvalidArgument) {
		return fmt.Errorf("before it's bound: %v", err)
	}
	if err := errors.Join(c.Bind(d), c.Bind(d)); err != nil {
		return err
	}
	for _, bad := range []*device.Device{nil, other, x.On()} {
		if err := c.Bind(bad); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("bound to %v: %v", bad, err)
		}
	}
	if c.Device() != name || c.Options().Device != name || c.Stream().Device() != d {
		return fmt.Errorf("the device is %s", c.Device())
	}
	s, err := d.NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx = device.WithStream(ctx, s)
	one := tensor.Must(tensor.ZerosOn(ctx, d, dtype.Float32, 1<<18))
	err = errors.Join(tensor.Fill(ctx, one, 1.0), c.AllReduce(ctx, one, comm.Sum), w.Wait(ctx), x.Fill(1.0),
		c.AllReduce(ctx, x, comm.Sum),
		c.AllReduce(ctx, one, comm.Sum), holds(ctx, one, 4), holds(ctx, x, 2))
	part, serr := c.Split(ctx, []int{0, 1})
	if err = errors.Join(err, serr); err != nil {
		return err
	}
	if part.Device() != name {
		return fmt.Errorf("a part is for %s", part.Device())
	}
	if err := hostWindow(ctx, c, x, one); err != nil {
		return err
	}
	again, err := c.Regroup(ctx)
	if err != nil {
		return err
	}
	if c = again; c.Device() != name {
		return fmt.Errorf("the communicator of a regroup is for %s", c.Device())
	}
	if err := errors.Join(part.AllReduce(ctx, one, comm.Sum), holds(ctx, one, 8), c.AllReduce(ctx, one, comm.Sum),
		holds(ctx, one, 16),
		part.Finalize(ctx), c.Finalize(ctx)); err != nil {
		return err
	}
	if err := c.Bind(d); !errors.Is(err, comm.ErrFinalized) {
		return fmt.Errorf("bound when it's finalized: %v", err)
	}
	return nil
}

// hostWindow is a window of the host's memory in the communicator of a device: its signals block, behind what was
// enqueued.
func hostWindow(ctx context.Context, c *comm.Comm, x, on *tensor.Tensor) error {
	before := c.Traffic()
	w, err := c.NewWindow(ctx, x)
	if err != nil {
		return err
	}
	to, n := comm.Target{Rank: 1 - c.Rank()}, tensor.Must(x.Narrow(0, 0, 100))
	if err := errors.Join(w.Put(ctx, tensor.Must(on.Narrow(0, 0, 100)), to), w.Signal(ctx, to.Rank, 0),
		w.WaitSignal(ctx, to.Rank, 0), holds(ctx, n, 4)); err != nil {
		return err
	}
	if err := w.Signal(ctx, to.Rank, 0, comm.Async(new(comm.Work))); !errors.Is(err, comm.ErrInvalidArgument) {
		return fmt.Errorf("an asynchronous signal: %v", err)
	}
	if m, err := w.Map(to.Rank); err != nil || m.NumEl() != x.NumEl() {
		return fmt.Errorf("a peer's memory: %v", err)
	}
	if after := c.Traffic(); after.Mapped <= before.Mapped || after.Staged < before.Staged {
		return fmt.Errorf("traffic went from %v to %v", before, after)
	}
	return w.Close(ctx)
}
