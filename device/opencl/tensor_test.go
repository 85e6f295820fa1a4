//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Tensors are copied and converted by the driver's source as they are on the host, whatever their strides and types, on
// a device whose memory the host can't touch.
func TestElements(t *testing.T) {
	d := open(t, opencl.Options{Buffers: true})
	if !compiles(t, d, 0) {
		t.Skip("left out: the device's compiler doesn't work here")
	}
	opencl.OnPart(d, func() { t.Error("a kernel is given a part of a buffer, which may overlap another's") })
	dev := device.NewRuntime("opencl", d).Devices()[0]
	s, err := dev.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := device.WithStream(context.Background(), s)
	must := func(x *tensor.Tensor, err error) *tensor.Tensor {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
		return x
	}
	r := rand.New(rand.NewPCG(1, 2))
	numbers := make([]float64, 37*11)
	for i := range numbers {
		numbers[i] = float64(r.IntN(60)) + r.Float64()
	}
	plain := must(tensor.FromSlice(numbers, 37, 11))
	types := []dtype.DType{dtype.Bool, dtype.Uint8, dtype.Int16, dtype.Int32, dtype.Uint64, dtype.Int64, dtype.Float16,
		dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Complex64}
	for _, from := range types {
		host := must(tensor.Empty(from, 37, 11))
		x := must(tensor.EmptyOn(ctx, dev, from, 37, 11))
		if err := tensor.Copy(ctx, host, plain); err != nil {
			t.Fatal(err)
		}
		if err := tensor.Copy(ctx, x, host); err != nil {
			t.Fatal(err)
		}
		for i, to := range types {
			first := []int{1, 32}[i%2] // of the rows, so that it begins at an odd place, or where a part of a buffer may
			want, got := must(tensor.Empty(to, 11, 37-first)), must(tensor.Empty(to, 11, 37-first))
			y := must(tensor.EmptyOn(ctx, dev, to, 11, 37-first))
			part := func(x *tensor.Tensor) *tensor.Tensor {
				return must(must(x.Slice(0, first, 37, 1)).Transpose(0, 1))
			}
			for _, err := range []error{tensor.Copy(ctx, want, part(host)), tensor.Copy(ctx, y, part(x)),
				tensor.Copy(ctx, got, y), s.Synchronize(ctx)} {
				if err != nil {
					t.Fatalf("%v to %v: %v", from, to, err)
				}
			}
			a, err := got.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if b, err := want.Bytes(); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%v to %v: other elements than the host's", from, to)
			}
			y.Free()
		}
		x.Free()
	}
}
