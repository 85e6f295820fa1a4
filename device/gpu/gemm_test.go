//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
)

// supply makes a stand-in for a driver's library.
func supply(t *testing.T, name string) (*gputest.Library, *gpu.Library) {
	t.Helper()
	sim, err := gputest.New(gputest.Options{Name: name, MemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	lib, err := gpu.Supply(name, "stand-in", sim.Table())
	if err != nil {
		t.Fatal(err)
	}
	return sim, lib
}

// openStream makes the driver of a stand-in with its libraries, and a stream of a GPU. left counts the libraries'
// handles, plans and descriptions. None may be left after the test.
func openStream(t *testing.T, name string, sim *gputest.Library, lib *gpu.Library, left func() int) (*gpu.Driver,
	*device.Stream) {
	t.Helper()
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	s, err := device.NewRuntime(name, d).Devices()[0].NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Synchronize(context.Background()), s.Close(), d.Close(), sim.Close()); err != nil {
			t.Error(err)
		}
		if n := left(); n > 0 {
			t.Errorf("%d handles, plans or descriptions are left", n)
		}
	})
	return d, s
}

// openBLAS makes a driver whose library has one of products.
func openBLAS(t *testing.T, name string, status func(call string) abi.Status) (*gpu.Driver,
	map[abi.BLASHandle]*gputest.BLASHandle) {
	t.Helper()
	sim, lib := supply(t, name)
	table, handles := sim.BLAS(status)
	if err := lib.SupplyBLAS("stand-in", table); err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), sim.Close()); err != nil {
			t.Error(err)
		}
		if len(handles) > 0 {
			t.Errorf("%d handles are left", len(handles))
		}
	})
	return d, handles
}

// write and read are elements of a type in host memory; small integers are exact in all of them.
func write(t dtype.DType, b []byte, i int, x float64) {
	p := unsafe.Pointer(&b[i*t.Size()])
	switch t {
	case dtype.Float16:
		*(*dtype.F16)(p) = dtype.F16FromFloat64(x)
	case dtype.BFloat16:
		*(*dtype.BF16)(p) = dtype.BF16FromFloat64(x)
	case dtype.Float32:
		*(*float32)(p) = float32(x)
	case dtype.Float64:
		*(*float64)(p) = x
	case dtype.Complex64:
		*(*complex64)(p) = complex(float32(x), 1)
	case dtype.Complex128:
		*(*complex128)(p) = complex(x, 1)
	}
}

func read(t dtype.DType, b []byte, i int) complex128 {
	return gputest.Number(t, unsafe.Pointer(&b[i*t.Size()]))
}

// Products are those of the definition, for each type, transposed, with gaps between lines, and several at once: the
// library's columns are our rows.
func TestMultiply(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		d, _ := openBLAS(t, name, nil)
		l, err := d.MathLibrary(0, driver.GEMMs)
		if err != nil || !strings.HasSuffix(l.Name, "BLAS (stand-in)") || len(l.Types) != 6 {
			t.Fatal(l, err)
		}
		s, err := d.StreamCreate(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		const elements = 128
		for _, typ := range l.Types {
			bytes := elements * typ.Size()
			var mem [3]driver.Ptr
			var host [3][]byte
			for i := range mem {
				if mem[i], err = d.Malloc(0, bytes); err != nil {
					t.Fatal(err)
				}
				host[i] = make([]byte, bytes)
				for k := range elements {
					write(typ, host[i], k, float64((k*(2+i)+i)%5)-2)
				}
				if err := d.Copy(s, mem[i], driver.Ptr(uintptr(unsafe.Pointer(&host[i][0]))), bytes,
					driver.HostToDevice); err != nil {
					t.Fatal(err)
				}
			}
			for form := range 8 {
				p := &driver.GEMM{Type: typ, Rows: 3, Columns: 4, Depth: 2, Count: 1 + form/4*2, Alpha: 2, Beta: 1,
					Out: driver.Matrix{Ptr: mem[0], Pitch: 5, Next: 16},
					A:   driver.Matrix{Ptr: mem[1].Add(typ.Size()), Pitch: 4, Next: 13, Transposed: form&1 != 0},
					B:   driver.Matrix{Ptr: mem[2], Pitch: 6, Next: 0, Transposed: form&2 != 0}}
				if typ.IsComplex() {
					p.Alpha, p.Beta = 2-1i, 1i
				}
				want := make([]complex128, elements)
				for k := range elements {
					want[k] = read(typ, host[0], k)
				}
				place := func(m *driver.Matrix, k, r, c int) int {
					if m.Transposed {
						r, c = c, r
					}
					return k*m.Next + r*m.Pitch + c
				}
				for k := range p.Count {
					for r := range p.Rows {
						for c := range p.Columns {
							at := place(&p.Out, k, r, c)
							sum := complex128(0)
							for x := range p.Depth {
								sum += read(typ, host[1], 1+place(&p.A, k, r, x)) * read(typ, host[2], place(&p.B, k, x, c))
							}
							want[at] = p.Alpha*sum + p.Beta*want[at]
						}
					}
				}
				if err := d.Compute(s, p, 0); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(d.Copy(s, driver.Ptr(uintptr(unsafe.Pointer(&host[0][0]))), mem[0], bytes,
					driver.DeviceToHost), d.StreamSynchronize(context.Background(), s)); err != nil {
					t.Fatal(err)
				}
				for k := range elements {
					if got := read(typ, host[0], k); got != want[k] {
						t.Fatalf("%s: form %d of %v: element %d is %v, want %v", name, form, typ, k, got, want[k])
					}
					write(typ, host[0], k, float64(k%3))
				}
				if err := d.Copy(s, mem[0], driver.Ptr(uintptr(unsafe.Pointer(&host[0][0]))), bytes,
					driver.HostToDevice); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.StreamSynchronize(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			for _, m := range mem {
				if err := d.Free(0, m); err != nil {
					t.Error(err)
				}
			}
		}
		if err := d.StreamDestroy(s); err != nil {
			t.Error(err)
		}
	}
}

// Each stream has a handle, with a workspace of the size that PyTorch's variables say, and without atomic operations
// unless they're allowed. A handle is used again.
func TestBLASHandles(t *testing.T) {
	for _, x := range []struct {
		name, cuda, hip string
		bytes           int
	}{
		{"cuda", "", ":16:8", 8519680}, {"cuda", ":4096:8", "", 32 << 20}, {"cuda", ":16:8:1:2", "", 130 << 10},
		{"cuda", "whatever", "", 8519680}, {"cuda", ":0:0", "", 0}, {"hip", ":4096:8", "", 128 << 20},
		{"hip", "", ":16:8", 128 << 10},
	} {
		t.Run(fmt.Sprintf("%s %s%s", x.name, x.cuda, x.hip), func(t *testing.T) {
			t.Setenv("CUBLAS_WORKSPACE_CONFIG", x.cuda)
			t.Setenv("HIPBLAS_WORKSPACE_CONFIG", x.hip)
			d, handles := openBLAS(t, x.name, nil)
			m, err := d.Malloc(0, 1<<10)
			if err != nil {
				t.Fatal(err)
			}
			p := &driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 2, Depth: 2, Count: 1, Alpha: 1,
				Out: driver.Matrix{Ptr: m, Pitch: 2}, A: driver.Matrix{Ptr: m.Add(64), Pitch: 2},
				B: driver.Matrix{Ptr: m.Add(128), Pitch: 2}}
			var streams []driver.StreamHandle
			for k := range 3 {
				s, err := d.StreamCreate(0, 0)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
				p.Atomics = k == 1
				err = errors.Join(d.Compute(s, p, 0), d.Compute(s, p, 0), d.StreamSynchronize(context.Background(), s))
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range handles {
					if want := map[string]int32{"hip": 1}[x.name]; k == 1 && h.Stream == abi.Stream(s) && h.Atomics != want {
						t.Errorf("atomic operations: %d, want %d", h.Atomics, want)
					}
				}
				if k == 1 { // its handle is the next one's
					if err := d.StreamDestroy(s); err != nil {
						t.Fatal(err)
					}
				}
			}
			l, err := d.MathLibrary(0, driver.GEMMs)
			if want := x.name == "cuda" && x.cuda != ":4096:8"; err != nil || l.Varies != want {
				t.Errorf("products vary: %t, want %t (%v)", l.Varies, want, err)
			}
			if len(handles) != 2 {
				t.Errorf("%d handles of two streams", len(handles))
			}
			for _, h := range handles {
				want := map[abi.Stream]int{abi.Stream(streams[0]): 2, abi.Stream(streams[2]): 4}[h.Stream]
				if h.Workspace != x.bytes || h.Atomics != 0 || h.Products != want {
					t.Errorf("a handle has %+v, want a workspace of %d bytes and %d products", *h, x.bytes, want)
				}
			}
			if err := errors.Join(d.StreamDestroy(streams[0]), d.StreamDestroy(streams[2]), d.Free(0, m)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The error of a refused product has a kind by which a caller does without the library. A captured stream goes on.
func TestMultiplyRefused(t *testing.T) {
	t.Setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
	var next abi.Status
	var of string
	d, _ := openBLAS(t, "cuda", func(call string) abi.Status {
		if call == of {
			return next
		}
		return abi.Done
	})
	m, err := d.Malloc(0, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 2, Depth: 2, Count: 1, Alpha: 1,
		Out: driver.Matrix{Ptr: m, Pitch: 2}, A: driver.Matrix{Ptr: m.Add(64), Pitch: 2},
		B: driver.Matrix{Ptr: m.Add(128), Pitch: 2}}
	refused := func(what string, kind error, p driver.GEMM) {
		t.Helper()
		if err := d.Compute(s, &p, 0); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", what, err, kind)
		}
	}
	integers, wide, beyond := p, p, p
	integers.Type, wide.A.Pitch, beyond.B.Ptr = dtype.Int32, 1<<31, m.Add(1<<10-8)
	refused("integers", driver.ErrUnsupported, integers)
	refused("a pitch of 32 bits", driver.ErrOutOfBounds, wide)
	refused("the end of the memory", driver.ErrOutOfBounds, beyond)
	for status, kind := range map[abi.Status]error{15: driver.ErrUnsupported, 7: driver.ErrUnsupported,
		3: driver.ErrOutOfMemory, 13: driver.ErrInternal} {
		of, next = "Multiply", status
		refused(status.String(), kind, p)
	}
	of = ""
	if err := d.CaptureBegin(s); err != nil {
		t.Fatal(err)
	}
	refused("a capture without a workspace", driver.ErrCapture, p)
	g, err := d.CaptureEnd(s)
	if err := errors.Join(err, d.GraphDestroy(g), d.Compute(s, &p, 0), d.StreamSynchronize(context.Background(), s),
		d.StreamDestroy(s), d.Free(0, m)); err != nil {
		t.Error(err)
	}
}

// A graph has products of the library, with a workspace of its own for each stream: neither the streams' own work nor
// another graph uses that. It's freed with the graph and what was instantiated of it.
func TestMultiplyCaptured(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) { multiplyCaptured(t, name) })
	}
}

func multiplyCaptured(t *testing.T, name string) {
	d, handles := openBLAS(t, name, nil)
	m := must(d.MallocHost(1 << 10))
	s := must(d.StreamCreate(0, 0))
	x := unsafe.Slice(*(**float32)(unsafe.Pointer(&m)), 256)
	p := driver.GEMM{Type: dtype.Float32, Rows: 1, Columns: 1, Depth: 1, Count: 1, Alpha: 1,
		Out: driver.Matrix{Ptr: m, Pitch: 1}, A: driver.Matrix{Ptr: m.Add(64), Pitch: 1},
		B: driver.Matrix{Ptr: m.Add(128), Pitch: 1}}
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	given := func() (now, used uintptr) {
		for _, h := range handles {
			if h.Stream == abi.Stream(s) {
				return h.At, h.Used
			}
		}
		return 0, 0
	}
	x[16], x[32] = 2, 3
	ctx := context.Background()
	check(d.Compute(s, &p, 0), d.StreamSynchronize(ctx, s))
	own, _ := given()
	before, _, err := d.MemInfo(0)
	check(err)
	check(d.CaptureBegin(s), d.Compute(s, &p, 0))
	within, first := given()
	handle, err := d.BLASHandle(s)
	check(err)
	if h := handles[abi.BLASHandle(handle)]; within != own || h.At != own {
		t.Errorf("in a capture the handle has the workspace %#x, then %#x, want the stream's, %#x", within, h.At, own)
	}
	g, err := d.CaptureEnd(s)
	check(err, d.CaptureBegin(s), d.Compute(s, &p, 0))
	_, second := given()
	other, err := d.CaptureEnd(s)
	check(err, d.Compute(s, &p, 0))
	if own == 0 || first == own || second == own || second == first {
		t.Errorf("workspaces: the stream's %#x, the graphs' %#x and %#x", own, first, second)
	}
	if now, used := given(); now != own || used != own {
		t.Errorf("behind the captures the workspace is %#x, and %#x was used, want %#x", now, used, own)
	}
	e := must(d.Instantiate(g))
	check(d.GraphDestroy(g), d.GraphDestroy(other), d.StreamSynchronize(ctx, s))
	x[16] = 5
	check(d.GraphLaunch(e, s), d.StreamSynchronize(ctx, s))
	if x[0] != 15 {
		t.Errorf("a replay's product is %v, want 15", x[0])
	}
	check(d.ExecDestroy(e), d.StreamSynchronize(ctx, s))
	if after, _, err := d.MemInfo(0); err != nil || after != before {
		t.Errorf("%d bytes are free, %d before the captures (%v)", after, before, err)
	}
	// Without room for a workspace the capture has none of the library's products, and goes on.
	all := must(d.Malloc(0, int(before)))
	check(d.CaptureBegin(s))
	if err := d.Compute(s, &p, 0); !errors.Is(err, driver.ErrCapture) {
		t.Errorf("a captured product with no room for a workspace: %v", err)
	}
	g, err = d.CaptureEnd(s)
	check(err, d.GraphDestroy(g), d.Free(0, all), d.Compute(s, &p, 0))
	check(d.StreamSynchronize(ctx, s), d.StreamDestroy(s), d.FreeHost(m))
}

// A library that can't be opened says where it was looked for; one that is named and is no such library, what it lacks.
func TestNoProducts(t *testing.T) {
	for library, want := range map[string]string{"none": "CHORUS_BLAS_LIBRARY is none", "/nonesuch.so": "/nonesuch.so",
		"libc.so.6": "lacks cublasCreate_v2"} {
		t.Setenv("CHORUS_BLAS_LIBRARY", library)
		d, _ := open(t, gputest.Options{Name: "cuda"})
		_, err := d.MathLibrary(0, driver.GEMMs)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
}

// A stream's handle is the one with which it multiplies, bound to the stream. Without a library there's none.
func TestBLASHandle(t *testing.T) {
	d, handles := openBLAS(t, "cuda", nil)
	seen := map[uintptr]bool{}
	for range 2 {
		s, err := device.NewRuntime("cuda", d).Devices()[0].NewStream(device.Normal)
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.BLASHandle()
		again, e := s.BLASHandle()
		if err = errors.Join(err, e); err != nil || first != again || first == 0 {
			t.Fatalf("%#x, then %#x: %v", first, again, err)
		}
		if h := handles[abi.BLASHandle(first)]; h == nil || uintptr(h.Stream) != uintptr(s.Handle()) {
			t.Errorf("%#x is the handle %+v, of a stream %v", first, h, s.Handle())
		}
		seen[first] = true
		t.Cleanup(func() { _ = s.Close() })
	}
	if len(seen) != 2 {
		t.Errorf("two streams have %d handles", len(seen))
	}
	t.Setenv("CHORUS_BLAS_LIBRARY", "none")
	sim, lib := supply(t, "cuda")
	without, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	s, err := device.NewRuntime("cuda", without).Devices()[0].NewStream(device.Normal)
	if err == nil {
		_, err = s.BLASHandle()
	}
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "CHORUS_BLAS_LIBRARY is none") {
		t.Errorf("without a library: %v", err)
	}
	if err := errors.Join(s.Close(), without.Close(), sim.Close()); err != nil {
		t.Error(err)
	}
}
