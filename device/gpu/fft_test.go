//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
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

// openFFT makes a GPU whose library has one of transforms, and a stream of it.
func openFFT(t *testing.T, name string, status func(call string) abi.FFTResult) (*gpu.Driver, *device.Stream,
	map[abi.FFTPlan]*gputest.FFTPlan) {
	t.Helper()
	sim, lib := supply(t, name)
	table, plans := sim.FFT(status)
	if err := lib.SupplyFFT("stand-in", table); err != nil {
		t.Fatal(err)
	}
	d, s := openStream(t, name, sim, lib, func() int { return len(plans) })
	return d, s, plans
}

// place is where an element of a side lies, in elements: i counts them in row-major order.
func place(x *driver.FFTSide, transform, i int) int {
	at := transform * x.Next
	for d := len(x.Sizes) - 1; d >= 0; d-- {
		at, i = at+i%x.Sizes[d]*x.Strides[d], i/x.Sizes[d]
	}
	return at
}

func number(k int) complex128 { return complex(float64(k*7%11)-5, float64(k*5%7)-3) }

// Transforms are those of the definition: of each kind and type, with gaps, and several at once.
func TestTransform(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		_, s, _ := openFFT(t, name, nil)
		l, err := s.Device().FFTLibrary()
		if err != nil || !strings.HasSuffix(l.Name, "FFT (stand-in)") || l.Dims != 3 || l.Spoils != (name == "hip") {
			t.Fatal(l, err)
		}
		for _, sizes := range [][]int{{1}, {5}, {8}, {3, 4}, {4, 1}, {1, 5}, {2, 3, 5}} {
			for _, typ := range []dtype.DType{dtype.Float32, dtype.Float64} {
				for kind := driver.ComplexToComplex; kind <= driver.ComplexToReal; kind++ {
					for form := range 4 { // inverse or forward; dense or with gaps
						x := &driver.FFT{Kind: kind, Type: typ, Count: 1 + form, Inverse: kind == driver.ComplexToReal ||
							kind == driver.ComplexToComplex && form&1 != 0}
						gap := 1 + form/2
						x.InNext, x.OutNext = gap, gap
						for i := len(sizes) - 1; i >= 0; i-- {
							x.Dims = append([]driver.FFTDim{{Size: sizes[i], In: x.InNext, Out: x.OutNext}}, x.Dims...)
							x.InNext, x.OutNext = x.InNext*(sizes[i]+form/2), x.OutNext*(sizes[i]+form/2)
						}
						if err := transformed(t, s, x); err != nil {
							t.Fatalf("%s: kind %d of %v, sizes %v, form %d: %v", name, kind, typ, sizes, form, err)
						}
					}
				}
			}
		}
	}
}

// transformed compares a transform with the definition.
func transformed(t *testing.T, s *device.Stream, x *driver.FFT) error {
	t.Helper()
	sides := x.Sides()
	sizes, total, sign := make([]int, len(x.Dims)), 1, -1.0
	for i, d := range x.Dims {
		sizes[i] = d.Size
		total *= d.Size
	}
	if x.Inverse {
		sign = 1
	}
	half := sizes[len(sizes)-1]/2 + 1
	var host [2][]byte
	var want [][]complex128
	for i := range sides {
		host[i] = make([]byte, sides[i].Bytes(x.Count))
	}
	for c := range x.Count {
		all := make([]complex128, total)
		for i := range all {
			all[i] = number(c + i)
			if x.Kind != driver.ComplexToComplex {
				all[i] = complex(real(all[i]), 0)
			}
		}
		in := all
		if x.Kind == driver.ComplexToReal {
			in = gputest.DFT(all, sizes, -1)
		}
		want = append(want, gputest.DFT(in, sizes, sign))
		k := 0
		for i, z := range in {
			if x.Kind == driver.ComplexToReal && i%sizes[len(sizes)-1] >= half {
				continue
			}
			to := unsafe.Pointer(&host[0][place(&sides[0], c, k)*sides[0].Type.Size()])
			switch sides[0].Type {
			case dtype.Float32:
				*(*float32)(to) = float32(real(z))
			case dtype.Float64:
				*(*float64)(to) = real(z)
			case dtype.Complex64:
				*(*complex64)(to) = complex64(z)
			default:
				*(*complex128)(to) = z
			}
			k++
		}
	}
	var mem [2]driver.Ptr
	for i := range mem {
		var err error
		if mem[i], err = s.Device().Alloc(len(host[i]), s); err != nil {
			t.Fatal(err)
		}
		defer s.Device().Dealloc(mem[i])
		if err := s.Copy(mem[i], driver.Ptr(uintptr(unsafe.Pointer(&host[i][0]))), len(host[i])); err != nil {
			t.Fatal(err)
		}
	}
	y := *x
	y.In, y.Out = mem[0], mem[1]
	if err := s.FFT(&y); err != nil {
		return err
	}
	if err := errors.Join(s.Copy(driver.Ptr(uintptr(unsafe.Pointer(&host[1][0]))), mem[1], len(host[1])),
		s.Synchronize(context.Background())); err != nil {
		t.Fatal(err)
	}
	for c := range x.Count {
		k := 0
		for i, z := range want[c] {
			if x.Kind == driver.RealToComplex && i%sizes[len(sizes)-1] >= half {
				continue
			}
			got := gputest.Number(sides[1].Type, unsafe.Pointer(&host[1][place(&sides[1], c, k)*sides[1].Type.Size()]))
			if cmplx.Abs(got-z) > 1e-4*float64(total) || math.IsNaN(real(got)) {
				return fmt.Errorf("transform %d: element %d is %v, want %v", c, i, got, z)
			}
			k++
		}
	}
	return nil
}

// Plans are made once for each form of transform, and kept up to the number that is wanted.
func TestFFTPlans(t *testing.T) {
	_, s, plans := openFFT(t, "cuda", nil)
	m, err := s.Device().Alloc(1<<12, s)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Device().Dealloc(m)
	cache, err := s.Device().FFTPlans()
	if err != nil || cache.Most() != 4096 {
		t.Fatalf("%v: %d plans at most", err, cache.Most())
	}
	run := func(n int) {
		t.Helper()
		x := &driver.FFT{Type: dtype.Float32, Dims: []driver.FFTDim{{Size: n, In: 1, Out: 1}}, Count: 1, In: m,
			Out: m.Add(1 << 11)}
		if err := errors.Join(s.FFT(x), s.Synchronize(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		do         func()
		kept, made int
	}{
		{func() { run(4); run(5); run(4) }, 2, 2}, {func() { run(6) }, 3, 3},
		{func() { _ = cache.SetMost(1) }, 1, 1}, {func() { run(4) }, 1, 1},
		{cache.Clear, 0, 0}, {func() { _ = cache.SetMost(0); run(4) }, 0, 0}, {func() { _ = cache.SetMost(2); run(4) }, 1, 1},
	} {
		step.do()
		if cache.Len() != step.kept || len(plans) != step.made {
			t.Errorf("%d plans are kept, %d there; want %d and %d", cache.Len(), len(plans), step.kept, step.made)
		}
	}
	for _, p := range plans {
		if p.Transforms != 1 {
			t.Errorf("a plan has done %d transforms", p.Transforms)
		}
	}
}

// The error of a refused transform has a kind by which a caller does without the library.
func TestTransformRefused(t *testing.T) {
	var next abi.FFTResult
	var of string
	d, s, plans := openFFT(t, "cuda", func(call string) abi.FFTResult {
		if call == of {
			return next
		}
		return abi.Transformed
	})
	m, err := d.Malloc(0, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	good := func() *driver.FFT {
		return &driver.FFT{Type: dtype.Float32, Count: 1, In: m, Out: m.Add(1 << 11),
			Dims: []driver.FFTDim{{Size: 3, In: 4, Out: 4}, {Size: 4, In: 1, Out: 1}}}
	}
	refused := func(what string, kind error, change func(x *driver.FFT)) {
		t.Helper()
		x := good()
		change(x)
		if err := s.FFT(x); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", what, err, kind)
		}
	}
	refused("half precision", driver.ErrUnsupported, func(x *driver.FFT) { x.Type = dtype.Float16 })
	refused("four dimensions", driver.ErrUnsupported, func(x *driver.FFT) { x.Dims = append(x.Dims, x.Dims...) })
	refused("no dimensions", driver.ErrInvalidArgument, func(x *driver.FFT) { x.Dims = nil })
	refused("no elements", driver.ErrInvalidArgument, func(x *driver.FFT) { x.Dims[0].Size = 0 })
	refused("a stride of 0", driver.ErrInvalidArgument, func(x *driver.FFT) { x.Dims[1].In = 0 })
	refused("one input for all", driver.ErrInvalidArgument, func(x *driver.FFT) { x.Count, x.OutNext = 2, 12 })
	refused("an inverse to complex", driver.ErrInvalidArgument, func(x *driver.FFT) {
		x.Kind, x.Inverse = driver.RealToComplex, true
	})
	refused("another layout in place", driver.ErrInvalidArgument, func(x *driver.FFT) {
		x.Out, x.Dims[0].Out = x.In, 5
	})
	refused("strides that aren't nested", driver.ErrUnsupported, func(x *driver.FFT) { x.Dims[1].In, x.Dims[0].In = 2, 9 })
	refused("columns first", driver.ErrUnsupported, func(x *driver.FFT) { x.Dims[1].In, x.Dims[0].In = 3, 1 })
	refused("the end of the memory", driver.ErrOutOfBounds, func(x *driver.FFT) { x.In = m.Add(1<<12 - 64) })
	refused("half a number", driver.ErrUnsupported, func(x *driver.FFT) { x.In = m.Add(4) })
	cache, err := s.Device().FFTPlans()
	if err != nil {
		t.Fatal(err)
	}
	for result, kind := range map[abi.FFTResult]error{abi.FFTNotSupported: driver.ErrUnsupported,
		abi.FFTInvalidSize: driver.ErrUnsupported, abi.FFTAllocFailed: driver.ErrOutOfMemory,
		abi.FFTInternalError: driver.ErrInternal} {
		for _, of = range []string{"Create", "MakePlanMany64", "Exec"} {
			next = result
			cache.Clear()
			refused(of+": "+result.String(), kind, func(x *driver.FFT) { x.Dims[0].Size = 2 })
		}
	}
	of = ""
	if err := d.CaptureBegin(s.Handle()); err != nil {
		t.Fatal(err)
	}
	refused("a capture", driver.ErrCapture, func(*driver.FFT) {})
	g, err := d.CaptureEnd(s.Handle())
	if err := errors.Join(err, d.GraphDestroy(g), s.FFT(good()), s.Synchronize(context.Background()),
		d.Free(0, m)); err != nil {
		t.Error(err)
	}
	if len(plans) != 2 {
		t.Errorf("there are %d plans", len(plans))
	}
}

// A library that can't be opened says where it was looked for; one that is named and is no such library, what it lacks.
func TestNoTransforms(t *testing.T) {
	for library, want := range map[string]string{"none": "CHORUS_FFT_LIBRARY is none", "/nonesuch.so": "/nonesuch.so",
		"libc.so.6": "lacks cufftCreate"} {
		t.Setenv("CHORUS_FFT_LIBRARY", library)
		d, _ := open(t, gputest.Options{Name: "cuda"})
		_, err := d.MathLibrary(0, driver.FFTs)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
}
