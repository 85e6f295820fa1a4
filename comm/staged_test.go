//go:build linux && (amd64 || arm64)

package comm_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	_ "github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// onUntouchable opens a world on a device whose memory the process can't touch.
func onUntouchable(name string) func(t testing.TB, size int) []*comm.Comm {
	return func(t testing.TB, size int) []*comm.Comm {
		return open(t, size, func(int) []comm.NewOption {
			return []comm.NewOption{comm.WithFabric("shm"), comm.WithDevice(name)}
		})
	}
}

// openCLBuffers is OpenCL's device without shared memory.
func openCLBuffers(t *testing.T) string {
	t.Setenv("VIRTUAL_ENV", filepath.Join(testutil.ModuleRoot(t), ".venvs", "opencl"))
	t.Setenv("CHORUS_OPENCL_SHARED_MEMORY", "false")
	rt, err := device.Load("opencl")
	if err == nil {
		err = rt.Err()
	}
	if err != nil {
		t.Skipf("left out: `make opencl` installs PoCL: %v", err)
	}
	if _, touchable := rt.Driver().(device.HostKernels); touchable {
		t.Fatal("the process can touch the memory")
	}
	return "opencl:0"
}

var (
	copied  atomic.Int64 // how often oneQueue's library has copied
	streams atomic.Int64 // how many streams it has made
	refused atomic.Bool  // it records no event
	failing atomic.Pointer[failure]
)

// failure is of a function of oneQueue's library, from a number of copies on. One with a function happens once, and
// has its result.
type failure struct {
	call  string
	after int64
	once  func() abi.Result
}

// oneQueue is a stand-in for a GPU whose streams all share one queue of the hardware.
func oneQueue(t *testing.T) string {
	const name = "gpu_of_one_queue"
	sim, err := gputest.New(gputest.Options{Name: "cuda", Queues: 1, Fail: func(call string) abi.Result {
		switch call {
		case "cuMemcpyAsync":
			copied.Add(1)
		case "cuStreamCreateWithPriority":
			streams.Add(1)
		case "cuEventRecord":
			if refused.Load() {
				return abi.InvalidValue
			}
		}
		if f := failing.Load(); f != nil && f.call == call && copied.Load() >= f.after {
			if f.once == nil {
				return abi.InvalidValue
			}
			if failing.CompareAndSwap(f, nil) {
				return f.once()
			}
		}
		return abi.Success
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	lib, err := gpu.Supply("cuda", "a stand-in", sim.Table())
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err == nil {
		err = device.Register(name, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Unregister(name) })
	return name + ":0"
}

// Operations on tensors that engines of the process can't touch go through pinned memory, and hold no stream.
func TestStaged(t *testing.T) {
	for _, on := range []struct {
		name string
		open func(t *testing.T) string
	}{{"OpenCL", openCLBuffers}, {"GPU", oneQueue}} {
		t.Run(on.name, func(t *testing.T) {
			open := onUntouchable(on.open(t))
			t.Run("Orders", func(t *testing.T) { testStagedOrders(t, open) })
			t.Run("Freed", func(t *testing.T) { testStagedFreed(t, open) })
			t.Run("LeftOut", func(t *testing.T) { testStagedLeftOut(t, open) })
			t.Run("Splits", func(t *testing.T) { testStagedSplits(t, open) })
			t.Run("Barrier", func(t *testing.T) { testStagedBarrier(t, open) })
			t.Run("Unposted", func(t *testing.T) { testStagedUnposted(t, open) })
			t.Run("Withdrawn", func(t *testing.T) { testStagedWithdrawn(t, open) })
			t.Run("Windows", func(t *testing.T) { testStagedWindows(t, open) })
			cfg := commtest.Config{Open: open, Device: true, Worlds: []int{2}, Limit: 10 * time.Minute}
			cfg.Skip = []string{"Streams", "StreamFailures", "StreamWindows", "Graphs", "GraphsOfSeveral",
				"StreamPrograms"} // about streams that wait
			if on.name == "GPU" { // where a graph waits for other ranks, it holds up the queue that it shares with theirs
				cfg.Skip = append(cfg.Skip, "replayed", "asynchronous and replayed")
			}
			if !testutil.Short() {
				commtest.Run(t, cfg)
				return
			}
			t.Run("Async", func(t *testing.T) { commtest.Async(t, cfg) })
			t.Run("PointToPoint", func(t *testing.T) { commtest.PointToPoint(t, cfg) })
		})
	}
}

// filled is a tensor of the device, whose elements a stand-in without kernels has, too.
func filled(ctx context.Context, s *device.Stream, n int, v float64) (*tensor.Tensor, error) {
	host, err := tensor.EmptyPinned(s.Device().Runtime(), dtype.Float32, n)
	if err != nil {
		return nil, err
	}
	x, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, n)
	if err == nil {
		err = errors.Join(host.Fill(v), tensor.Copy(ctx, x, host))
	}
	return x, err
}

// Ranks call the operations of two communicators in different orders, on streams that share a queue: one that waited for
// other ranks would hold up the work that they wait for.
func testStagedOrders(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 2)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		other, err := c.Split(ctx, []int{0, 1})
		if err != nil {
			return err
		}
		both := []*comm.Comm{c, other}
		var works [2]comm.Work
		var xs [2]*tensor.Tensor
		for i := range both {
			at := (i + c.Rank()) % 2
			if xs[at], err = filled(ctx, s, 1<<16, float64(at+1)); err != nil {
				return err
			}
			if err := both[at].AllReduce(ctx, xs[at], comm.Sum, comm.Async(&works[at])); err != nil {
				return err
			}
		}
		for at := range both {
			if err := errors.Join(works[at].Wait(ctx), holds(ctx, xs[at], float64(2*at+2))); err != nil {
				return err
			}
		}
		x, err := filled(ctx, s, 100, float64(c.Rank()+5))
		if err == nil {
			err = errors.Join(other.Broadcast(ctx, x, 1), holds(ctx, x, 6), other.Finalize(ctx))
		}
		return err
	})
}

// A tensor that is only written comes without its elements, and one that is only read doesn't go back.
func TestStagedCopies(t *testing.T) {
	comms := onUntouchable(oneQueue(t))(t, 1)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := filled(ctx, s, 100, 1)
		y, failed := filled(ctx, s, 100, 2)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		for _, one := range []struct {
			name   string
			run    func() error
			copies int64
		}{
			{"broadcast", func() error { return c.Broadcast(ctx, x, 0) }, 1},
			{"all_reduce", func() error { return c.AllReduce(ctx, x, comm.Sum) }, 2},
			{"all_gather_single", func() error { return c.AllGatherSingle(ctx, y, x) }, 2},
			{"scan", func() error { return c.Scan(ctx, x, comm.Sum) }, 2},
			{"barrier", func() error { return c.Barrier(ctx) }, 0},
		} {
			before := copied.Load()
			if err := one.run(); err != nil {
				return err
			}
			if n := copied.Load() - before; n != one.copies {
				return fmt.Errorf("%s copies %d times, want %d", one.name, n, one.copies)
			}
		}
		return holds(ctx, y, 1)
	})
}

// A tensor that is freed has its memory until the operation is done, although no stream has work with it before.
func testStagedFreed(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 1)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		const n = 1 << 20
		x, err := filled(ctx, s, n, 1)
		if err != nil {
			return err
		}
		gate := make(chan struct{})
		if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
			return err
		}
		var w comm.Work
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
			return err
		}
		x.Free()
		y, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, n)
		if err != nil {
			return err
		}
		if y.Pointer() == x.Pointer() {
			return errors.New("the memory of an operation under way was given away")
		}
		close(gate)
		if err := w.Synchronize(ctx); err != nil {
			return err
		}
		z, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, n)
		if err == nil && z.Pointer() != x.Pointer() {
			err = errors.New("the memory of an operation that is done wasn't given back")
		}
		return err
	})
}

// The end of an output that splits leave out stays as it is.
func testStagedSplits(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 2)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		for _, rows := range []int{0, 2} {
			x, err := filled(ctx, s, 10, 1)
			y, failed := filled(ctx, s, 10, 7)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			if err := c.AllToAllVSingle(ctx, y, x, []int{rows, rows}, []int{rows, rows}); err != nil {
				return err
			}
			got, left := tensor.Must(y.Narrow(0, 0, 2*rows)), tensor.Must(y.Narrow(0, 2*rows, 10-2*rows))
			if err := errors.Join(holds(ctx, got, 1), holds(ctx, left, 7)); err != nil {
				return fmt.Errorf("%d rows: %w", rows, err)
			}
		}
		return nil
	})
}

// Windows are of host memory there, also of ranks that expose nothing.
func testStagedWindows(t *testing.T, open func(testing.TB, int) []*comm.Comm) {
	comms := open(t, 2)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := filled(ctx, s, 10, 1)
		if err != nil {
			return err
		}
		host := tensor.Must(tensor.Zeros(dtype.Float32, 10))
		if c.Rank() == 1 {
			host = nil
		}
		w, err := c.NewWindow(ctx, host)
		if err != nil {
			return err
		}
		refused := func(op string, err error) error {
			if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), "can't touch the memory of") {
				return fmt.Errorf("%s: %v", op, err)
			}
			return nil
		}
		var failed error
		if c.Rank() == 1 {
			mine := tensor.Must(tensor.Zeros(dtype.Float32, 10))
			failed = errors.Join(refused("put", w.Put(ctx, x, comm.Target{})), mine.Fill(3), w.Put(ctx, mine, comm.Target{}),
				w.Signal(ctx, 0, 0))
		} else if failed = w.WaitSignal(ctx, 1, 0); failed == nil {
			failed = holds(ctx, host, 3)
		}
		failed = errors.Join(failed, w.Close(ctx))
		_, err = c.NewWindow(ctx, x)
		return errors.Join(failed, refused("new_window", err))
	})
}
