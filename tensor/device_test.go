//go:build unix

package tensor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	emulated "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/accinte/accintetest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// compiled are devices that run no Go functions, but kernels of modules.
type compiled struct {
	device.Driver
	device.Modules
}

func (compiled) ElementsImage(int) ([]byte, error) { return []byte("elements"), nil }

func init() {
	device.RegisterLoader("compiled", func() (device.Driver, error) {
		drv, err := emulated.New(emulated.Options{MemoryBytes: 1 << 30})
		return compiled{drv, drv}, err
	})
	emulated.RegisterModule("elements", map[string]emulated.Function{"copy_elements": accintetest.CopyElements})
}

func accinte(t testing.TB, index int) (context.Context, *device.Device) {
	t.Helper()
	return on(t, "accinte", index)
}

func on(t testing.TB, kind string, index int) (context.Context, *device.Device) {
	t.Helper()
	d, err := device.Get(fmt.Sprintf("%s:%d", kind, index))
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return device.WithStream(context.Background(), s), d
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Every kind of copy among host, pinned memory and devices, for layouts and types, gives what the host alone gives.
func TestCopiesAmongDevices(t *testing.T) {
	for _, kind := range []string{"accinte", "compiled"} {
		t.Run(kind, func(t *testing.T) { copiesAmong(t, kind) })
	}
}

func copiesAmong(t *testing.T, kind string) {
	ctx, d := on(t, kind, 0)
	_, e := on(t, kind, 1)
	places := map[string]func(dt dtype.DType, shape ...int) *tensor.Tensor{
		"host": func(dt dtype.DType, shape ...int) *tensor.Tensor { return must(tensor.Empty(dt, shape...)) },
		"pinned": func(dt dtype.DType, shape ...int) *tensor.Tensor {
			return must(tensor.EmptyPinned(d.Runtime(), dt, shape...))
		},
		"first":  func(dt dtype.DType, shape ...int) *tensor.Tensor { return must(tensor.EmptyOn(ctx, d, dt, shape...)) },
		"second": func(dt dtype.DType, shape ...int) *tensor.Tensor { return must(tensor.EmptyOn(ctx, e, dt, shape...)) },
	}
	layouts := map[string]func(x *tensor.Tensor) *tensor.Tensor{
		"whole":      func(x *tensor.Tensor) *tensor.Tensor { return x },
		"transposed": func(x *tensor.Tensor) *tensor.Tensor { return must(x.Transpose(0, 1)) },
		"every 2nd":  func(x *tensor.Tensor) *tensor.Tensor { return must(x.Slice(1, 0, 6, 2)) },
	}
	sync := func() {
		for _, x := range []*device.Device{d, e} {
			if err := x.Synchronize(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	numbers := must(tensor.FromSlice(func() []float64 {
		v := make([]float64, 36)
		for i := range v {
			v[i] = float64(i - 7)
		}
		return v
	}(), 6, 6))
	for from, makeSrc := range places {
		for to, makeDst := range places {
			for srcLayout, lay := range layouts {
				for dstLayout, layDst := range layouts {
					for _, dt := range []dtype.DType{dtype.Float32, dtype.Int16} {
						name := fmt.Sprintf("%s %s to %s %s %v", from, srcLayout, to, dstLayout, dt)
						base := makeSrc(dtype.Float32, 6, 6)
						if err := tensor.Copy(ctx, base, numbers); err != nil {
							t.Fatal(name, err)
						}
						sync()
						src := lay(base)
						shape := src.Shape()
						full := map[string][]int{"whole": shape, "transposed": {shape[0], shape[1]}, "every 2nd": {shape[0],
							2 * shape[1]}}[dstLayout]
						if dstLayout == "transposed" {
							full = []int{shape[1], shape[0]}
						}
						out := makeDst(dt, full...)
						dst := out
						if dstLayout == "every 2nd" {
							dst = must(out.Slice(1, 0, 2*shape[1], 2))
						} else {
							dst = layDst(out)
						}
						if err := tensor.Copy(ctx, dst, src); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						sync()
						want := must(tensor.Empty(dt, shape...))
						if err := want.CopyFrom(lay(numbers)); err != nil {
							t.Fatal(err)
						}
						got, err := dst.To(ctx, nil)
						if err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						if !tensor.Equal(got, want) {
							t.Fatalf("%s: got %v, want %v", name, got, want)
						}
						base.Free()
						out.Free()
					}
				}
			}
		}
	}
}

func TestDeviceFillAndCast(t *testing.T) {
	for _, kind := range []string{"accinte", "compiled"} {
		t.Run(kind, func(t *testing.T) { fillAndCast(t, kind) })
	}
}

func fillAndCast(t *testing.T, kind string) {
	ctx, d := on(t, kind, 0)
	for _, dt := range dtype.All() {
		x := must(tensor.ZerosOn(ctx, d, dt, 3, 4))
		col := must(x.Select(1, 2))
		if err := tensor.Fill(ctx, col, 1); err != nil {
			t.Fatal(err)
		}
		want := must(tensor.Zeros(dt, 3, 4))
		if err := must(want.Select(1, 2)).Fill(1); err != nil {
			t.Fatal(err)
		}
		if got := must(x.To(ctx, nil)); !tensor.Equal(got, want) {
			t.Errorf("%v: %v, want %v", dt, got, want)
		}
		f := must(tensor.Cast(ctx, col, dtype.Float64))
		if f.On() != d {
			t.Errorf("the cast is on %v", f.Device())
		}
		if got := must(f.To(ctx, nil)); got.At(1) != 1 {
			t.Errorf("%v: cast to %v", dt, got)
		}
	}
}

// Copies between views of the same memory go by way of other memory; a layout of too many dimensions is refused.
func TestCompiledKernels(t *testing.T) {
	ctx, d := on(t, "compiled", 0)
	x := must(tensor.FromSlice([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3))
	y := must(x.To(ctx, d))
	if err := tensor.Copy(ctx, y, must(y.Transpose(0, 1))); err != nil {
		t.Fatal(err)
	}
	if got := must(y.To(ctx, nil)); !tensor.Equal(got, must(must(x.Transpose(0, 1)).Contiguous())) {
		t.Error(got)
	}
	dims := []int{3, 3, 3, 3, 3, 3, 3, 3, 3}
	z := must(tensor.ZerosOn(ctx, d, dtype.Int8, dims...))
	for i := range dims {
		z = must(z.Slice(i, 0, 3, 2))
	}
	if _, err := tensor.Compact(ctx, z); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("a copy of nine dimensions: %v", err)
	}
}

// No Go path reads or writes device memory as if it were the host's: each gives the named error.
func TestHostAccessIsAnError(t *testing.T) {
	ctx, d := accinte(t, 0)
	x := must(tensor.ZerosOn(ctx, d, dtype.Float32, 4, 4))
	host := must(tensor.Zeros(dtype.Float32, 4, 4))
	dir := t.TempDir()
	panicked := func(f func()) func() error {
		return func() (err error) {
			defer func() { err, _ = recover().(error) }()
			f()
			return nil
		}
	}
	for name, f := range map[string]func() error{
		"Bytes":       func() error { _, err := x.Bytes(); return err },
		"Slice":       func() error { _, err := tensor.Slice[float32](x); return err },
		"CopyFrom":    func() error { return host.CopyFrom(x) },
		"CopyFrom to": func() error { return x.CopyFrom(host) },
		"Clone":       func() error { _, err := x.Clone(); return err },
		"Contiguous":  func() error { _, err := must(x.Transpose(0, 1)).Contiguous(); return err },
		"Flatten":     func() error { _, err := must(x.Transpose(0, 1)).Flatten(); return err },
		"Fill":        func() error { return x.Fill(1) },
		"Zero":        func() error { return x.Zero() },
		"SetAt":       panicked(func() { _ = x.SetAt(1, 0, 0) }),
		"At":          panicked(func() { x.At(0, 0) }),
		"AtComplex":   panicked(func() { x.AtComplex(0, 0) }),
		"Value":       panicked(func() { x.Value(0, 0) }),
		"Equal":       panicked(func() { tensor.Equal(x, host) }),
		"AllClose":    panicked(func() { tensor.AllClose(host, x, 0, 0) }),
		"WriteNPY":    func() error { return tensor.WriteNPY(&bytes.Buffer{}, x) },
		"SaveNPY":     func() error { return tensor.SaveNPY(filepath.Join(dir, "x.npy"), x) },
		"HostBytes":   func() error { _, err := d.Runtime().HostBytes(device.Ptr(uintptr(x.Pointer())), 4); return err },
		"a view": func() error {
			_, err := must(x.Select(0, 1)).Bytes()
			return err
		},
	} {
		if err := f(); !errors.Is(err, device.ErrHostAccess) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := x.String(); !strings.Contains(s, "on accinte:0") {
		t.Errorf("String: %q", s)
	}
}

func TestFromDevice(t *testing.T) {
	ctx, d := accinte(t, 0)
	p := must(d.Malloc(64))
	defer func() {
		if err := d.Free(p); err != nil {
			t.Error(err)
		}
	}()
	if _, err := tensor.FromDevice(dtype.Float32, d, p, 17); !errors.Is(err, device.ErrOutOfBounds) {
		t.Errorf("too long: %v", err)
	}
	if _, err := tensor.FromDevice(dtype.Float32, must(device.Get("accinte:1")), p, 16); !errors.Is(err,
		device.ErrWrongDevice) {
		t.Errorf("another device's: %v", err)
	}
	x := must(tensor.FromDevice(dtype.Float32, d, p, 16))
	if err := tensor.Fill(ctx, x, 2.5); err != nil {
		t.Fatal(err)
	}
	if got := must(x.To(ctx, nil)); got.At(15) != 2.5 {
		t.Error(got)
	}
	x.Free() // isn't its to free
	if err := tensor.Fill(ctx, x, 3); err != nil {
		t.Error(err)
	}
	if err := must(d.CurrentStream(ctx)).Synchronize(ctx); err != nil {
		t.Error(err)
	}
}

// A copy to pinned memory returns before it's done: it waits for work in front of it.
func TestPinnedCopiesDoNotWait(t *testing.T) {
	ctx, d := accinte(t, 0)
	s := must(d.CurrentStream(ctx))
	x := must(tensor.ZerosOn(ctx, d, dtype.Int32, 8))
	host := must(tensor.EmptyPinned(d.Runtime(), dtype.Int32, 8))
	gate := make(chan struct{})
	if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := tensor.Fill(ctx, x, 7); err != nil {
		t.Fatal(err)
	}
	if err := tensor.Copy(ctx, host, x); err != nil {
		t.Fatal(err)
	}
	x.Free()
	close(gate)
	if err := s.Synchronize(ctx); err != nil {
		t.Fatal(err)
	}
	if host.At(7) != 7 {
		t.Error(host)
	}
}
