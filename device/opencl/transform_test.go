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

	"github.com/chorus-comms/chorus/device"
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
func places(x *device.TransformSide, f func(at int)) {
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
func openFFT(t *testing.T, o opencl.Options) (device.Driver, device.Transforms) {
	t.Helper()
	t.Setenv("CHORUS_FFT_LIBRARY", strings.Join(abi.CLFFTNames, ":"))
	d := open(t, o)
	x := d.(device.Transforms)
	if _, err := x.TransformLibrary(0); err != nil {
		t.Skipf("left out: Debian's libclfft2 isn't here: %v", err)
	}
	if !compiles(t, d, 0) {
		t.Skip("left out: the device's compiler doesn't work here")
	}
	return d, x
}

// dense is a transform of dense numbers.
func dense(kind device.TransformKind, typ dtype.DType, count int, sizes ...int) *device.Transform {
	t := &device.Transform{Kind: kind, Type: typ, Count: count, Inverse: kind == device.ComplexToReal, InNext: 1, OutNext: 1}
	t.Dims = make([]device.TransformDim, len(sizes))
	for i := len(sizes) - 1; i >= 0; i-- {
		in, out := sizes[i], sizes[i]
		if i == len(sizes)-1 {
			if kind == device.RealToComplex {
				out = out/2 + 1
			}
			if kind == device.ComplexToReal {
				in = in/2 + 1
			}
		}
		t.Dims[i] = device.TransformDim{Size: sizes[i], In: t.InNext, Out: t.OutNext}
		t.InNext, t.OutNext = t.InNext*in, t.OutNext*out
	}
	return t
}

// compare runs a transform on random numbers and compares it with the definition.
func compare(t *testing.T, d device.Driver, s device.StreamHandle, x *device.Transform) error {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(x.Count)))
	sides := x.Sides()
	var mem [2]device.Ptr
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
	at := func(i int) device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(&host[i][0]))) }
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
			if x.Kind == device.ComplexToComplex {
				all[i] += complex(0, random.NormFloat64())
			}
		}
		in, out := all, dft(all, sizes, sign)
		if x.Kind == device.ComplexToReal { // of the transform of real numbers
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
		if x.Kind == device.RealToComplex {
			out = half(out)
		}
		if x.Kind == device.ComplexToReal {
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
	if err := errors.Join(d.Copy(s, mem[0], at(0), len(host[0]), device.HostToDevice),
		d.Copy(s, mem[1], at(1), len(host[1]), device.HostToDevice)); err != nil {
		t.Fatal(err)
	}
	if err := d.(device.Transforms).Transform(s, &y); err != nil {
		return err
	}
	if err := errors.Join(d.Copy(s, at(1), mem[1], len(host[1]), device.DeviceToHost),
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
	sizes := [][]int{{8}, {15}, {3, 4}}
	if !testing.Short() && os.Getenv("CHORUS_TEST_LONG") != "" {
		sizes = [][]int{{1}, {2}, {3}, {8}, {15}, {60}, {1024}, {11, 13}, {1, 8}, {8, 1}, {2, 3, 4}, {3, 5, 7}, {4096}, {16, 1024}}
	}
	for name, o := range map[string]opencl.Options{"shared": {}, "buffers": {Buffers: true}} {
		t.Run(name, func(t *testing.T) {
			d, _ := openFFT(t, o)
			s, err := d.StreamCreate(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, sizes := range sizes {
				for kind := device.ComplexToComplex; kind <= device.ComplexToReal; kind++ {
					typ := []dtype.DType{dtype.Float32, dtype.Float64}[i%2]
					x := dense(kind, typ, 1+i%3, sizes...)
					begin := time.Now()
					err := compare(t, d, s, x)
					t.Log(kind, typ, sizes, x.Count, time.Since(begin), err)
					if err != nil && !errors.Is(err, device.ErrUnsupported) {
						t.Errorf("kind %v of %v, %d of sizes %v: %v", kind, typ, x.Count, sizes, err)
					}
				}
			}
			if err := d.StreamDestroy(s); err != nil {
				t.Error(err)
			}
		})
	}
}
