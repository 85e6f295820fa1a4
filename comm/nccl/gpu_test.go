//go:build linux

package nccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/accinte/accintetest"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// The functions of the table do what they are called, with data: on GPUs, by the libraries that are there, one rank for
// each; and on emulated devices, which shows that the test is right.
func TestTable(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) {
		lib, err := nccl.Load("nccl", simulate(t, nccltest.Options{Version: "2.32"}))
		if err != nil {
			t.Fatal(err)
		}
		table(t, lib, devices(t, "accinte"))
	})
	for backend, name := range families {
		t.Run(name, func(t *testing.T) {
			gpus := devices(t, name)
			table(t, library(t, backend), gpus)
		})
	}
}

// families are the backends, and the devices that they are for.
var families = map[string]string{"nccl": "cuda", "rccl": "hip"}

// devices are those of a type, all that there are.
func devices(t *testing.T, name string) []*device.Device {
	t.Helper()
	rt, err := device.Open(name)
	if err != nil {
		t.Skip("left out: ", err)
	}
	for _, d := range rt.Devices() {
		t.Logf("%v: %s, %d MiB", d, d.Properties().Name, d.Properties().TotalMemory>>20)
	}
	return rt.Devices()
}

func library(t *testing.T, backend string) *nccl.Library {
	t.Helper()
	lib, err := nccl.Load(backend, "")
	if err != nil {
		t.Skip("left out: ", err)
	}
	t.Log(lib)
	return lib
}

// Every GPU there is behaves as devices do. Others may use its memory too. Its kernels are compiled here, if the
// vendor's compiler is there; that for tensors gives what the host gives, for every two types.
func TestDevices(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) { elements(t, devices(t, "accinte")[0]) })
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			rt := devices(t, name)[0].Runtime()
			kernels := false
			// A stream can't even be made while streams that wait hold all queues of the GPU, which has 8 of them
			// unless the variable says otherwise.
			queues, err := strconv.Atoi(os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
			if err != nil {
				queues = 8
			}
			options := []devicetest.Option{devicetest.SharedMemory(), devicetest.Patience(10 * time.Second),
				devicetest.Programs(50), devicetest.Blocked(queues / 2)}
			m, err := rt.Devices()[0].LoadModule(devicetest.Source)
			switch {
			case errors.Is(err, device.ErrUnsupported):
				t.Log("without kernels: ", err)
			case err != nil:
				t.Error(err)
			default:
				kernels = true
				options = append(options, devicetest.Module(devicetest.Source))
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
			devicetest.Run(t, rt.Driver(), options...)
			if kernels && !t.Failed() { // after a failure a stream may be held back for good
				elements(t, rt.Devices()[0])
			}
		})
	}
}

// elements copies tensors of every type to one of every other, with other strides, on the device and on the host.
func elements(t *testing.T, d *device.Device) {
	s, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(device.WithStream(context.Background(), s), time.Minute)
	defer cancel()
	const rows, columns = 31, 47
	r := rand.New(rand.NewPCG(1, 2))
	numbers := make([]float64, rows*columns)
	for i := range numbers {
		numbers[i] = r.NormFloat64() * math.Exp2(float64(r.IntN(80)-40))
	}
	one := func(from, to dtype.DType) error {
		wide, err := tensor.FromSlice(numbers, rows, columns)
		if err != nil {
			return err
		}
		host, err1 := tensor.Empty(from, rows, columns)
		want, err2 := tensor.Empty(to, columns, rows)
		got, err3 := tensor.Empty(to, columns, rows)
		src, err4 := tensor.EmptyOn(ctx, d, from, rows, columns)
		dst, err5 := tensor.EmptyOn(ctx, d, to, columns, rows)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return err
		}
		defer src.Free()
		defer dst.Free()
		turned, err1 := host.Transpose(0, 1)
		there, err2 := src.Transpose(0, 1)
		if err := errors.Join(err1, err2, host.CopyFrom(wide), want.CopyFrom(turned), tensor.Copy(ctx, src, host),
			tensor.Copy(ctx, dst, there), tensor.Copy(ctx, got, dst), s.Synchronize(ctx)); err != nil {
			return err
		}
		a, err1 := got.Bytes()
		b, err2 := want.Bytes()
		if err := errors.Join(err1, err2); err != nil || bytes.Equal(a, b) {
			return err
		}
		return errors.New("other numbers than the host's")
	}
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			if err := one(from, to); err != nil {
				t.Errorf("%v to %v: %v", from, to, err)
			}
		}
	}
}

// supply registers the devices of a stand-in for GPUs under a name, and a stand-in for NCCL on them, which the hint
// library calls "for " and the name.
func supply(t *testing.T, sim *gputest.Library, family, name string) {
	t.Helper()
	supplyWith(t, sim, family, name, nccltest.Options{Version: "2.32"})
}

// supplyWith is supply of a stand-in for NCCL with options. The devices are forgotten at the end of the test.
func supplyWith(t *testing.T, sim *gputest.Library, family, name string, options nccltest.Options) {
	t.Helper()
	lib, err := gpu.Supply(family, "a stand-in", sim.Table())
	if err == nil {
		err = lib.SupplyCompiler("a stand-in", sim.Compiler())
	}
	if err != nil {
		t.Fatal(err)
	}
	driver, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Register(name, driver); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Unregister(name); err != nil {
			t.Error(err)
		}
	})
	options.Driver, options.Current = sim.Driver(), sim.Current
	simulated, err := nccltest.New(options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nccl.Supply("NCCL", "for "+name, simulated.Table(), name); err != nil {
		t.Fatal(err)
	}
}

// A communicator on every GPU there is, by the vendor's library; and on the stand-in for GPUs by that for NCCL, which
// shows that the test is right.
func TestCommunicators(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) {
		for _, family := range families {
			sim, err := gputest.New(gputest.Options{Name: family, MemoryBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sim.Close() })
			name := family + "_stand_in"
			supply(t, sim, family, name)
			communicators(t, "nccl", "for "+name, devices(t, name))
		}
	})
	for backend, name := range families {
		t.Run(name, func(t *testing.T) {
			gpus := devices(t, name)
			library(t, backend)
			communicators(t, backend, "", gpus)
		})
	}
}

var registerElements sync.Once

// onGPUs are the tests that are left out there: also those that launch functions in Go.
var onGPUs = append([]string{"Graphs", "GraphsOfSeveral", "StreamPrograms"}, skipped...)

// The suite of communicators holds over the real libraries, with a rank for each GPU; and over the stand-ins for both.
func TestConformanceOnGPUs(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) {
		sim, err := gputest.New(gputest.Options{Name: "cuda", Devices: 3, MemoryBytes: 256 << 20,
			StructBytes: 8 + 3*8*8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sim.Close() })
		const name = "cuda_stand_in_suite"
		supply(t, sim, "cuda", name)
		source, err := devices(t, name)[0].Runtime().Driver().(device.Elements).ElementsImage(0)
		if err != nil {
			t.Fatal(err)
		}
		registerElements.Do(func() { // the stand-in's compiler makes this of the source
			accinte.RegisterModule(string(source), map[string]accinte.Function{"copy_elements": accintetest.CopyElements})
		})
		commtest.Run(t, commtest.Config{
			Open: func(t testing.TB, size int) []*comm.Comm {
				return openOn(t, []string{name + ":0", name + ":1", name + ":2"}, "nccl", "for "+name, size)
			},
			Shared: true, Device: true, Worlds: testutil.Pick([]int{2}, []int{1, 2, 3}), Skip: onGPUs})
	})
	for backend, name := range families {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, d := range devices(t, name) {
				names = append(names, d.Name())
			}
			library(t, backend)
			worlds := []int{1}
			if len(names) > 1 {
				worlds = append(worlds, len(names))
			}
			commtest.Run(t, commtest.Config{
				Open:   func(t testing.TB, size int) []*comm.Comm { return openOn(t, names, backend, "", size) },
				Shared: true, Device: true, Worlds: worlds, Skip: onGPUs})
		})
	}
}

// communicators has a rank on each device, which reduces on the current stream, asynchronously, and in a graph.
func communicators(t *testing.T, backend, library string, gpus []*device.Device) {
	const count = 1 << 12
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st := store.NewHash(time.Minute)
	defer st.Close()
	hints := map[string]string{}
	if library != "" {
		hints["library"] = library
	}
	n := len(gpus)
	rank := func(me int) (err error) {
		c, err := comm.New(ctx, comm.WithBackend(backend), comm.WithDevice(gpus[me].Name()), comm.WithRank(me, n),
			comm.WithStore(st), comm.WithTimeout(30*time.Second), comm.WithHints(hints))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Finalize(ctx)) }()
		s, err := gpus[me].NewStream(device.Normal)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		ctx := device.WithStream(ctx, s)
		host := make([]float32, count)
		for i := range host {
			host[i] = float32(me + 1 + i%7)
		}
		p, err := gpus[me].Malloc(4 * count)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, gpus[me].Free(p)) }()
		x, err := tensor.FromDevice(dtype.Float32, gpus[me], p, count)
		if err != nil {
			return err
		}
		fill := func() error { return s.CopyIn(ctx, p, floats(host)) }
		holds := func(what string, want func(i int) float32) error {
			got := make([]float32, count)
			if err := s.CopyOut(ctx, floats(got), p); err != nil {
				return err
			}
			for i := range got {
				if got[i] != want(i) {
					return fmt.Errorf("rank %d: %s: element %d is %v, want %v", me, what, i, got[i], want(i))
				}
			}
			return nil
		}
		sum := func(times int) func(i int) float32 {
			return func(i int) float32 {
				v := float32(n*(n+1)/2 + n*(i%7))
				for range times - 1 {
					v *= float32(n)
				}
				return v
			}
		}
		var w comm.Work
		if err := errors.Join(fill(), c.AllReduce(ctx, x, comm.Sum), holds("all_reduce", sum(1)), fill(),
			c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)), w.Wait(ctx), holds("an asynchronous one", sum(1)),
			fill()); err != nil {
			return err
		}
		g, err := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Sum) })
		if err != nil {
			return err
		}
		return errors.Join(g.Replay(s), g.Replay(s), holds("a graph, twice,", sum(2)), g.Close())
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for me := range n {
		wg.Go(func() { errs[me] = rank(me) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// table runs tabled on every device at once, each with a communicator of the library that doesn't block.
func table(t *testing.T, lib *nccl.Library, boards []*device.Device) {
	var id abi.UniqueID
	if r := lib.GetUniqueID(&id); r != abi.Success {
		t.Fatal(r, lib.GetLastError(0))
	}
	errs := make([]error, len(boards))
	var wg sync.WaitGroup
	for r, b := range boards {
		wg.Go(func() {
			unbind, err := b.Bind()
			if err != nil {
				errs[r] = err
				return
			}
			defer unbind()
			errs[r] = tabled(lib, b, id, r, len(boards))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func tabled(lib *nccl.Library, b *device.Device, id abi.UniqueID, me, n int) error {
	ctx := context.Background()
	config, err := abi.Pack(lib.Version(), map[string]string{"blocking": "0"})
	if err != nil {
		return err
	}
	defer config.Free()
	c := new(abi.Comm)
	check := func(what string, r abi.Result) error {
		// A call may return success while the library still works on it.
		for deadline := time.Now().Add(time.Minute); (r == abi.InProgress || r == abi.Success) && *c != 0; {
			if e := lib.GetAsyncError(*c, &r); e != abi.Success {
				r = e
			}
			if r != abi.InProgress || time.Now().After(deadline) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if r == abi.Success {
			return nil
		}
		return fmt.Errorf("rank %d: %s: %v: %s", me, what, r, lib.GetLastError(*c))
	}
	if err := check("start", lib.CommInitRankConfig(c, int32(n), id, int32(me), config.Pointer())); err != nil {
		return err
	}
	stream, err := b.NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer stream.Close()
	s := abi.Stream(stream.Handle())
	const count = 1 << 12
	from, err := b.Malloc(4 * count * n)
	if err != nil {
		return err
	}
	to, err := b.Malloc(4 * count * n)
	if err != nil {
		return err
	}
	in, out := uintptr(from), uintptr(to)
	value := func(rank, i int) float32 { return float32(rank*10 + i%7) }
	sum := func(i int) (x float32) {
		for q := range n {
			x += value(q, i)
		}
		return x
	}
	right, left := int32((me+1)%n), int32((me+n-1)%n)
	half := float32(0.5)
	premul := new(abi.RedOp)
	if err := check("premul", lib.RedOpCreatePreMulSum(premul, unsafe.Pointer(&half), abi.Float32,
		abi.ScalarHostImmediate, *c)); err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		n    int // elements of the result; 0: this rank has none
		call func() abi.Result
		want func(i int) float32
	}{
		{"all_reduce", count, func() abi.Result {
			return lib.AllReduce(in, out, count, abi.Float32, abi.Sum, *c, s)
		}, sum},
		{"max", count, func() abi.Result { return lib.AllReduce(in, out, count, abi.Float32, abi.Max, *c, s) },
			func(i int) float32 { return value(n-1, i) }},
		{"average", count, func() abi.Result { return lib.AllReduce(in, out, count, abi.Float32, abi.Avg, *c, s) },
			func(i int) float32 { return sum(i) / float32(n) }},
		{"premul", count, func() abi.Result { return lib.AllReduce(in, out, count, abi.Float32, *premul, *c, s) },
			func(i int) float32 { return sum(i) / 2 }},
		{"broadcast", count, func() abi.Result {
			return lib.Broadcast(in, out, count, abi.Float32, int32(n-1), *c, s)
		}, func(i int) float32 { return value(n-1, i) }},
		{"all_gather", count * n, func() abi.Result { return lib.AllGather(in, out, count, abi.Float32, *c, s) },
			func(i int) float32 { return value(i/count, i%count) }},
		{"reduce_scatter", count, func() abi.Result {
			return lib.ReduceScatter(in, out, count, abi.Float32, abi.Sum, *c, s)
		}, func(i int) float32 { return sum(me*count + i) }},
		{"reduce", count * max(0, 1-me), func() abi.Result {
			return lib.Reduce(in, out, count, abi.Float32, abi.Sum, 0, *c, s)
		}, sum},
		{"a ring", count, func() abi.Result {
			results := []abi.Result{lib.GroupStart(), lib.Send(in, count, abi.Float32, right, *c, s),
				lib.Recv(out, count, abi.Float32, left, *c, s), lib.GroupEnd()}
			return results[max(0, slices.IndexFunc(results, func(r abi.Result) bool { return r != abi.Success }))]
		}, func(i int) float32 { return value(int(left), i) }},
		{"all_to_all", count * n, func() abi.Result {
			if lib.AllToAll == nil {
				return lib.AllGather(in, out, count, abi.Float32, *c, s)
			}
			return lib.AllToAll(in, out, count, abi.Float32, *c, s)
		}, func(i int) float32 {
			if lib.AllToAll == nil {
				return value(i/count, i%count)
			}
			return value(i/count, me*count+i%count)
		}},
	} {
		host := make([]float32, count*n)
		for i := range host {
			host[i] = value(me, i)
		}
		if err := errors.Join(stream.CopyIn(ctx, from, floats(host)), check(x.name, x.call()),
			stream.Synchronize(ctx)); err != nil {
			return err
		}
		got := make([]float32, x.n)
		if x.n == 0 {
			continue
		}
		if err := stream.CopyOut(ctx, floats(got), to); err != nil {
			return err
		}
		for i := range got {
			if want := x.want(i); math.Abs(float64(got[i]-want)) > 1e-3 {
				return fmt.Errorf("rank %d: %s: element %d is %v, want %v", me, x.name, i, got[i], want)
			}
		}
	}
	if err := check("redop", lib.RedOpDestroy(*premul, *c)); err != nil {
		return err
	}
	if lib.CommSplit != nil {
		part := new(abi.Comm)
		if err := check("split", lib.CommSplit(*c, 0, int32(n-me), part, config.Pointer())); err != nil {
			return err
		}
		if err := check("abort", lib.CommAbort(*part)); err != nil {
			return err
		}
	}
	if lib.CommFinalize != nil {
		if err := check("finalize", lib.CommFinalize(*c)); err != nil {
			return err
		}
	}
	last := *c
	*c = 0 // it is gone, and can't be asked for its state
	return errors.Join(check("destroy", lib.CommDestroy(last)), b.Free(from), b.Free(to))
}

func floats(f []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*len(f)) }
