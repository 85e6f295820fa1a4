//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// dft is the transform by its definition, of numbers in row-major order.
func dft(in []complex128, sizes []int, sign float64) []complex128 {
	out := append([]complex128{}, in...)
	inner := 1
	for d := len(sizes) - 1; d >= 0; d-- {
		n := sizes[d]
		line := make([]complex128, n)
		for first := range out {
			if first/inner%n != 0 {
				continue
			}
			for k := range n {
				line[k] = 0
				for j := range n {
					line[k] += out[first+j*inner] * cmplx.Rect(1, sign*2*math.Pi*float64(j*k%n)/float64(n))
				}
			}
			for k := range n {
				out[first+k*inner] = line[k]
			}
		}
		inner *= n
	}
	return out
}

// numbers are memory of a type, by elements.
func number(typ dtype.DType, p unsafe.Pointer, i int) complex128 {
	p = unsafe.Add(p, i*typ.Size())
	switch typ {
	case dtype.Float32:
		return complex(float64(*(*float32)(p)), 0)
	case dtype.Float64:
		return complex(*(*float64)(p), 0)
	case dtype.Complex64:
		return complex128(*(*complex64)(p))
	}
	return *(*complex128)(p)
}

func setNumber(typ dtype.DType, p unsafe.Pointer, i int, z complex128) {
	p = unsafe.Add(p, i*typ.Size())
	switch typ {
	case dtype.Float32:
		*(*float32)(p) = float32(real(z))
	case dtype.Float64:
		*(*float64)(p) = real(z)
	case dtype.Complex64:
		*(*complex64)(p) = complex64(z)
	default:
		*(*complex128)(p) = z
	}
}

// places calls f with the place of each element, in row-major order.
func places(x *driver.FFTSide, f func(at int)) {
	n := 1
	for _, s := range x.Sizes {
		n *= s
	}
	for i := range n {
		at, rest := 0, i
		for d := len(x.Sizes) - 1; d >= 0; d-- {
			at += rest % x.Sizes[d] * x.Strides[d]
			rest /= x.Sizes[d]
		}
		f(at)
	}
}

// openFFT opens a driver that uses clFFT if it's installed.
func openFFT(t *testing.T, o opencl.Options) (driver.Driver, driver.Mathematics) {
	t.Helper()
	t.Setenv("CHORUS_FFT_LIBRARY", strings.Join(abi.CLFFTNames, ":"))
	d := open(t, o)
	x := d.(driver.Mathematics)
	if _, err := x.MathLibrary(0, driver.FFTs); err != nil {
		t.Skipf("left out: Debian's libclfft2 isn't here: %v", err)
	}
	if !compiles(t, d, 0) {
		t.Skip("left out: the device's compiler doesn't work here")
	}
	return d, x
}

// dense is a transform of dense numbers.
func dense(kind driver.FFTKind, typ dtype.DType, count int, sizes ...int) *driver.FFT {
	t := &driver.FFT{Kind: kind, Type: typ, Count: count, Inverse: kind == driver.ComplexToReal, InNext: 1,
		OutNext: 1}
	t.Dims = make([]driver.FFTDim, len(sizes))
	for i := len(sizes) - 1; i >= 0; i-- {
		in, out := sizes[i], sizes[i]
		if i == len(sizes)-1 {
			if kind == driver.RealToComplex {
				out = out/2 + 1
			}
			if kind == driver.ComplexToReal {
				in = in/2 + 1
			}
		}
		t.Dims[i] = driver.FFTDim{Size: sizes[i], In: t.InNext, Out: t.OutNext}
		t.InNext, t.OutNext = t.InNext*in, t.OutNext*out
	}
	return t
}

// compare runs a transform on random numbers and compares it with the definition.
func compare(t *testing.T, d driver.Driver, s driver.StreamHandle, x *driver.FFT) error {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(x.Count)))
	sides := x.Sides()
	var mem [2]driver.Ptr
	var host [2][]byte
	var err error
	for i := range sides {
		bytes := sides[i].Bytes(x.Count)
		host[i] = make([]byte, bytes)
		if mem[i], err = d.Malloc(0, bytes); err != nil {
			t.Fatal(err)
		}
		defer d.Free(0, mem[i])
	}
	at := func(i int) driver.Ptr { return driver.Ptr(uintptr(unsafe.Pointer(&host[i][0]))) }
	var want [][]complex128
	sizes, total := make([]int, len(x.Dims)), 1
	for i, dim := range x.Dims {
		sizes[i] = dim.Size
		total *= dim.Size
	}
	sign := -1.0
	if x.Inverse {
		sign = 1
	}
	for c := range x.Count {
		all := make([]complex128, total)
		for i := range all {
			all[i] = complex(random.NormFloat64(), 0)
			if x.Kind == driver.ComplexToComplex {
				all[i] += complex(0, random.NormFloat64())
			}
		}
		in, out := all, dft(all, sizes, sign)
		if x.Kind == driver.ComplexToReal { // of the transform of real numbers
			in = dft(all, sizes, -1)
			for i := range all {
				out[i] = all[i] * complex(float64(total), 0)
			}
		}
		half := func(all []complex128) (kept []complex128) {
			n := sizes[len(sizes)-1]
			for i, z := range all {
				if i%n < n/2+1 {
					kept = append(kept, z)
				}
			}
			return kept
		}
		if x.Kind == driver.RealToComplex {
			out = half(out)
		}
		if x.Kind == driver.ComplexToReal {
			in = half(in)
		}
		k := 0
		places(&sides[0], func(place int) {
			setNumber(sides[0].Type, unsafe.Pointer(&host[0][0]), c*x.InNext+place, in[k])
			k++
		})
		want = append(want, out)
	}
	y := *x
	y.In, y.Out = mem[0], mem[1]
	if err := errors.Join(d.Copy(s, mem[0], at(0), len(host[0]), driver.HostToDevice),
		d.Copy(s, mem[1], at(1), len(host[1]), driver.HostToDevice)); err != nil {
		t.Fatal(err)
	}
	if err := d.(driver.Mathematics).Compute(s, &y, 0); err != nil {
		return err
	}
	if err := errors.Join(d.Copy(s, at(1), mem[1], len(host[1]), driver.DeviceToHost),
		d.StreamSynchronize(context.Background(), s)); err != nil {
		t.Fatal(err)
	}
	most := 2e-6
	if x.Type == dtype.Float64 {
		most = 1e-14
	}
	for c := range x.Count {
		k, sum, off := 0, 0.0, 0.0
		places(&sides[1], func(place int) {
			got := number(sides[1].Type, unsafe.Pointer(&host[1][0]), c*x.OutNext+place)
			sum += real(want[c][k] * cmplx.Conj(want[c][k]))
			off += real((got - want[c][k]) * cmplx.Conj(got-want[c][k]))
			k++
		})
		if !(math.Sqrt(off/sum) <= most) {
			return fmt.Errorf("transform %d is off by %.2g", c, math.Sqrt(off/sum))
		}
	}
	return nil
}

// clFFT's transforms are those of the definition. It may refuse some, as its kernels may not compile.
func TestTransform(t *testing.T) {
	sizes := [][]int{{2}} // others take clFFT seconds each on a processor
	if os.Getenv("CHORUS_TEST_LONG") != "" {
		sizes = [][]int{{1}, {2}, {3}, {8}, {15}, {2, 3}, {3, 1}, {1, 3}, {2, 3, 2}}
	}
	for name, o := range map[string]opencl.Options{"shared": {}, "buffers": {Buffers: true}} {
		t.Run(name, func(t *testing.T) {
			d, _ := openFFT(t, o)
			s, err := d.StreamCreate(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			done := 0
			for i, sizes := range sizes {
				for kind := driver.ComplexToComplex; kind <= driver.ComplexToReal; kind++ {
					typ := []dtype.DType{dtype.Float32, dtype.Float64}[i%2]
					x := dense(kind, typ, 1+i%3, sizes...)
					begin := time.Now()
					err := compare(t, d, s, x)
					t.Logf("kind %v of %v, %d of sizes %v: %v %v", kind, typ, x.Count, sizes, time.Since(begin), err)
					if err != nil && !errors.Is(err, driver.ErrUnsupported) {
						t.Error(err)
					}
					done += map[bool]int{true: 1}[err == nil]
				}
			}
			if err := d.StreamDestroy(s); err != nil {
				t.Error(err)
			}
			if done == 0 {
				t.Error("clFFT refuses all of them")
			}
		})
	}
}

// A stand-in for clFFT gets what clFFT's functions take: lengths and strides from the innermost dimension on, buffers
// that begin at the numbers, and the stream's queue. Its results are the transform's errors, and a plan is made once.
func TestTransformCalls(t *testing.T) {
	type plan struct {
		lengths, in, out       [3]uintptr
		dims, precision, place int32
		layouts                [2]int32
		batch, inNext, outNext uintptr
		forward, backward      float32
		directions, begun      int
	}
	var got plan
	made, dropped, setups := 0, 0, 0
	of, result := "", abi.Result(0)
	returns := func(call string) abi.Result {
		if call == of {
			return result
		}
		return 0
	}
	read := func(p *uintptr, n int32) (x [3]uintptr) {
		copy(x[:], unsafe.Slice(p, n))
		return x
	}
	table := abi.CLFFT{
		Setup:    func(x *abi.FFTSetup) abi.Result { setups += int(x.Major) - 1; return 0 },
		Teardown: func() abi.Result { setups--; return 0 },
		Version:  func(major, minor, patch *uint32) abi.Result { *major, *minor, *patch = 2, 12, 2; return 0 },
		Plan: func(p *abi.FFTPlan, c abi.Context, dims int32, lengths *uintptr) abi.Result {
			if c == 0 {
				t.Error("there's no context")
			}
			made++
			got = plan{dims: dims, lengths: read(lengths, dims)}
			*p = 5
			return returns("Plan")
		},
		Precision: func(_ abi.FFTPlan, x int32) abi.Result { got.precision = x; return returns("Precision") },
		Layout:    func(_ abi.FFTPlan, in, out int32) abi.Result { got.layouts = [2]int32{in, out}; return 0 },
		Place:     func(_ abi.FFTPlan, x int32) abi.Result { got.place = x; return 0 },
		Batch:     func(_ abi.FFTPlan, n uintptr) abi.Result { got.batch = n; return 0 },
		InSteps:   func(_ abi.FFTPlan, n int32, x *uintptr) abi.Result { got.in = read(x, n); return 0 },
		OutSteps:  func(_ abi.FFTPlan, n int32, x *uintptr) abi.Result { got.out = read(x, n); return 0 },
		Distance: func(_ abi.FFTPlan, in, out uintptr) abi.Result {
			got.inNext, got.outNext = in, out
			return 0
		},
		Scale: func(_ abi.FFTPlan, direction int32, scale float32) abi.Result {
			if direction == abi.FFTForward {
				got.forward = scale
			} else {
				got.backward = scale
			}
			return 0
		},
		Bake: func(_ abi.FFTPlan, n uint32, q *abi.Queue, done, arg uintptr) abi.Result {
			if n != 1 || *q == 0 || done != 0 || arg != 0 {
				t.Error("a plan is for another queue")
			}
			return returns("Bake")
		},
		Transform: func(p abi.FFTPlan, direction int32, n uint32, q *abi.Queue, waits uint32, events, made *abi.Event,
			in, out *abi.Mem, tmp abi.Mem) abi.Result {
			if p != 5 || n != 1 || *q == 0 || waits != 0 || events != nil || made != nil || *in == 0 || *out == 0 || tmp != 0 {
				t.Error("a handle is missing")
			}
			got.directions += int(direction)
			got.begun++
			return returns("Transform")
		},
		DestroyPlan: func(*abi.FFTPlan) abi.Result { dropped++; return 0 },
	}
	for name, o := range map[string]opencl.Options{"shared": {CLFFT: &table}, "buffers": {Buffers: true, CLFFT: &table}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CHORUS_FFT_LIBRARY", "stand-in") // one that is named is used on processors
			made, dropped = 0, 0
			t.Cleanup(func() {
				if setups != 0 || made != dropped {
					t.Errorf("of %d plans %d are given back, and clFFT is set up %d times more", made, dropped, setups)
				}
			})
			d := open(t, o)
			x := d.(driver.Mathematics)
			s, err := d.StreamCreate(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			mem, err := d.Malloc(0, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			l, err := x.MathLibrary(0, driver.FFTs)
			if err != nil || l.Name != "clFFT (stand-in)" || l.Dims != 3 || l.Align < 1 {
				t.Errorf("the library is %+v, %v", l, err)
			}
			form := func() *driver.FFT {
				return &driver.FFT{Kind: driver.RealToComplex, Type: dtype.Float64, Count: 2, InNext: 70, OutNext: 50,
					In: mem.Add(1 << 13), Out: mem.Add(1 << 14),
					Dims: []driver.FFTDim{{Size: 6, In: 11, Out: 8}, {Size: 10, In: 1, Out: 1}}}
			}
			for range 2 {
				if err := x.Compute(s, form(), 0); err != nil {
					t.Fatal(err)
				}
			}
			want := plan{lengths: [3]uintptr{10, 6}, in: [3]uintptr{1, 11}, out: [3]uintptr{1, 8}, dims: 2, precision: 2,
				place: 2, layouts: [2]int32{5, 3}, batch: 2, inNext: 70, outNext: 50, forward: 1, backward: 1, directions: -2,
				begun: 2}
			if got != want || made != 1 {
				t.Errorf("clFFT got %+v in %d plans, want %+v in one", got, made, want)
			}
			cache, err := d.(driver.PlanCaches).FFTPlans(0)
			if err != nil || cache.Len() != 1 || cache.Most() != 4096 {
				t.Errorf("%d plans are kept, of %d (%v)", cache.Len(), cache.Most(), err)
			}
			refused := func(what string, kind error, change func(x *driver.FFT)) {
				t.Helper()
				y := form()
				change(y)
				if err := x.Compute(s, y, 0); !errors.Is(err, kind) {
					t.Errorf("%s: %v, want %v", what, err, kind)
				}
			}
			refused("a factor of 17", driver.ErrUnsupported, func(x *driver.FFT) { x.Dims[0].Size = 2 * 17 })
			refused("an odd address", driver.ErrUnsupported, func(x *driver.FFT) { x.In = x.In.Add(16) })
			refused("float16", driver.ErrUnsupported, func(x *driver.FFT) { x.Type = dtype.Float16 })
			refused("the end of the memory", driver.ErrOutOfBounds, func(x *driver.FFT) { x.In = mem.Add(1<<16 - 512) })
			host := make([]float64, 256)
			refused("memory of the host", driver.ErrUnsupported, func(x *driver.FFT) {
				x.In = driver.Ptr(uintptr(unsafe.Pointer(&host[0])))
			})
			for i, step := range []struct {
				call string
				r    abi.Result
				kind error
			}{{"Plan", 4096, driver.ErrUnsupported}, {"Precision", abi.FFTNoDouble, driver.ErrUnsupported},
				{"Bake", -11, driver.ErrUnsupported}, {"Transform", -44, driver.ErrUnsupported},
				{"Bake", -4, driver.ErrOutOfMemory}} {
				of, result = step.call, step.r
				before := made
				for range 2 {
					refused(step.call, step.kind, func(x *driver.FFT) { x.Count = 3 + i })
				}
				if n := made - before; n != 1 && step.kind == driver.ErrUnsupported {
					t.Errorf("%s: a transform that clFFT doesn't do is tried %d times", step.call, n)
				}
				if of == "Plan" { // of which nothing is given back
					dropped++
				}
			}
			of = ""
			g := d.(driver.Graphs)
			if err := g.CaptureBegin(s); err != nil {
				t.Fatal(err)
			}
			refused("a capture", driver.ErrCapture, func(*driver.FFT) {})
			h, err := g.CaptureEnd(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(g.GraphDestroy(h), d.StreamSynchronize(context.Background(), s), d.Free(0, mem),
				d.StreamDestroy(s)); err != nil {
				t.Error(err)
			}
			if cache.Len() != 0 {
				t.Errorf("%d plans of a stream that is gone are kept", cache.Len())
			}
		})
	}
}

// The error of a device without a library says what to change.
func TestNoFFTLibrary(t *testing.T) {
	for _, x := range []struct{ library, compiler, want string }{
		{"none", "", "CHORUS_FFT_LIBRARY is none"},
		{"", "", "clFFT is for GPUs; CHORUS_FFT_LIBRARY names one that is used on processors too"},
		{"stand-in", "self", "clFFT compiles its kernels in this process, and CHORUS_OPENCL_COMPILER wants another one"},
		{"stand-in", "", "clFFT unknown (stand-in) lacks clfftSetup"},
	} {
		t.Setenv("CHORUS_FFT_LIBRARY", x.library)
		t.Setenv("CHORUS_OPENCL_COMPILER", x.compiler)
		d := open(t, opencl.Options{CLFFT: &abi.CLFFT{}})
		_, err := d.(driver.Mathematics).MathLibrary(0, driver.FFTs)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %q", x.library, err, x.want)
		}
	}
}
