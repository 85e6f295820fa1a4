//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/ncclsim"
)

// board is what TestTable needs of a device.
type board interface {
	bind() error // makes it the calling thread's
	alloc(bytes int) (uintptr, error)
	free(p uintptr) error
	stream() (abi.Stream, error)
	wait(s abi.Stream) error
	put(p uintptr, from []float32) error
	get(to []float32, p uintptr) error
}

// The functions of the table do what they are called, with data: on GPUs, by the libraries that are there, one rank for
// each; and on emulated devices, which shows that the test is right.
func TestTable(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) {
		lib, err := nccl.Load("nccl", simulate(t, ncclsim.Options{Version: "2.32"}))
		if err != nil {
			t.Fatal(err)
		}
		var boards []board
		for i := range 2 {
			d, err := device.Get(fmt.Sprintf("accinte:%d", i))
			if err != nil {
				t.Fatal(err)
			}
			boards = append(boards, &emulated{d: d})
		}
		table(t, lib, boards)
	})
	t.Run("GPU", func(t *testing.T) {
		boards, err := gpus()
		if err != nil {
			t.Skip("left out: ", err)
		}
		lib, err := nccl.Load("nccl", "")
		if err != nil {
			t.Skip("left out: ", err)
		}
		t.Logf("%d GPUs, %v", len(boards), lib)
		table(t, lib, boards)
	})
}

// table runs f on every board at once, each with a communicator of the library that doesn't block.
func table(t *testing.T, lib *nccl.Library, boards []board) {
	var id abi.UniqueID
	if r := lib.GetUniqueID(&id); r != abi.Success {
		t.Fatal(r, lib.GetLastError(0))
	}
	errs := make([]error, len(boards))
	var wg sync.WaitGroup
	for r, b := range boards {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			errs[r] = tabled(lib, b, id, r, len(boards))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func tabled(lib *nccl.Library, b board, id abi.UniqueID, me, n int) error {
	if err := b.bind(); err != nil {
		return err
	}
	config, err := abi.Pack(lib.Version(), map[string]string{"blocking": "0"})
	if err != nil {
		return err
	}
	defer config.Free()
	c := new(abi.Comm)
	check := func(what string, r abi.Result) error {
		for deadline := time.Now().Add(time.Minute); r == abi.InProgress && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
			if e := lib.GetAsyncError(*c, &r); e != abi.Success {
				r = e
			}
		}
		if r == abi.Success {
			return nil
		}
		return fmt.Errorf("rank %d: %s: %v: %s", me, what, r, lib.GetLastError(*c))
	}
	if err := check("start", lib.CommInitRankConfig(c, int32(n), id, int32(me), config.Pointer())); err != nil {
		return err
	}
	s, err := b.stream()
	if err != nil {
		return err
	}
	const count = 1 << 12
	var in, out uintptr
	if in, err = b.alloc(4 * count * n); err != nil {
		return err
	}
	if out, err = b.alloc(4 * count * n); err != nil {
		return err
	}
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
		if err := errors.Join(b.put(in, host), check(x.name, x.call()), b.wait(s)); err != nil {
			return err
		}
		got := make([]float32, x.n)
		if x.n == 0 {
			continue
		}
		if err := b.get(got, out); err != nil {
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
		lib.CommAbort(*part)
	}
	if lib.CommFinalize != nil {
		if err := check("finalize", lib.CommFinalize(*c)); err != nil {
			return err
		}
	}
	return errors.Join(check("destroy", lib.CommDestroy(*c)), b.free(in), b.free(out))
}

// emulated is an emulated device as a board.
type emulated struct {
	d *device.Device
	s *device.Stream
}

func (e *emulated) bind() error { return nil }
func (e *emulated) alloc(bytes int) (uintptr, error) {
	p, err := e.d.Malloc(bytes)
	return uintptr(p), err
}
func (e *emulated) free(p uintptr) error { return e.d.Free(device.Ptr(p)) }
func (e *emulated) stream() (_ abi.Stream, err error) {
	e.s, err = e.d.NewStream(device.Normal)
	return abi.Stream(e.s.Handle()), err
}
func (e *emulated) wait(abi.Stream) error { return e.s.Synchronize(context.Background()) }
func (e *emulated) put(p uintptr, from []float32) error {
	return e.s.CopyIn(context.Background(), device.Ptr(p), floats(from))
}
func (e *emulated) get(to []float32, p uintptr) error {
	return e.s.CopyOut(context.Background(), floats(to), device.Ptr(p))
}

func floats(f []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*len(f)) }

// cuda is the part of NVIDIA's driver library that this test needs. Every function returns a CUresult.
type cuda struct {
	Init         func(flags uint32) int32                       `dl:"cuInit"`
	DeviceCount  func(n *int32) int32                           `dl:"cuDeviceGetCount"`
	Retain       func(ctx *uintptr, dev int32) int32            `dl:"cuDevicePrimaryCtxRetain"`
	SetCurrent   func(ctx uintptr) int32                        `dl:"cuCtxSetCurrent"`
	Alloc        func(p *uintptr, bytes uint64) int32           `dl:"cuMemAlloc_v2"`
	Free         func(p uintptr) int32                          `dl:"cuMemFree_v2"`
	ToDevice     func(p uintptr, from *float32, n uint64) int32 `dl:"cuMemcpyHtoD_v2"`
	ToHost       func(to *float32, p uintptr, n uint64) int32   `dl:"cuMemcpyDtoH_v2"`
	StreamCreate func(s *uintptr, flags uint32) int32           `dl:"cuStreamCreate"`
	StreamWait   func(s uintptr) int32                          `dl:"cuStreamSynchronize"`
}

// gpu is one of NVIDIA's as a board.
type gpu struct {
	*cuda
	dev int32
	ctx uintptr
}

func gpus() (boards []board, err error) {
	if found, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(found) == 0 {
		return nil, errors.New("there is no GPU of NVIDIA here (/dev/nvidia0)")
	}
	l, err := dl.Source{Name: "CUDA driver", Candidates: []string{"libcuda.so.1"}}.Open()
	if err != nil {
		return nil, err
	}
	var c cuda
	if _, err := l.Resolve(&c); err != nil {
		return nil, err
	}
	n := new(int32)
	if err := errors.Join(result("cuInit", c.Init(0)), result("cuDeviceGetCount", c.DeviceCount(n))); err != nil {
		return nil, err
	}
	for i := range *n {
		boards = append(boards, &gpu{cuda: &c, dev: i})
	}
	if len(boards) == 0 {
		return nil, fmt.Errorf("no GPU: %w", os.ErrNotExist)
	}
	return boards, nil
}

func result(call string, r int32) error {
	if r != 0 {
		return fmt.Errorf("%s: CUresult %d", call, r)
	}
	return nil
}

func (g *gpu) bind() error {
	if err := result("cuDevicePrimaryCtxRetain", g.Retain(&g.ctx, g.dev)); err != nil {
		return err
	}
	return result("cuCtxSetCurrent", g.SetCurrent(g.ctx))
}
func (g *gpu) alloc(bytes int) (uintptr, error) {
	p := new(uintptr)
	err := result("cuMemAlloc", g.Alloc(p, uint64(bytes)))
	return *p, err
}
func (g *gpu) free(p uintptr) error { return result("cuMemFree", g.Free(p)) }
func (g *gpu) stream() (abi.Stream, error) {
	s := new(uintptr)
	err := result("cuStreamCreate", g.StreamCreate(s, 1))
	return abi.Stream(*s), err
}
func (g *gpu) wait(s abi.Stream) error {
	return result("cuStreamSynchronize", g.StreamWait(uintptr(s)))
}
func (g *gpu) put(p uintptr, from []float32) error {
	return result("cuMemcpyHtoD", g.ToDevice(p, &from[0], uint64(4*len(from))))
}
func (g *gpu) get(to []float32, p uintptr) error {
	return result("cuMemcpyDtoH", g.ToHost(&to[0], p, uint64(4*len(to))))
}
