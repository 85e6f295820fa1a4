//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/accinte/accintetest"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Tensors are copied, converted and filled by the driver's source, whatever their strides.
func TestElements(t *testing.T) {
	registered := false
	for _, name := range []string{"cuda", "hip"} {
		d, _ := open(t, gputest.Options{Name: name, MemoryBytes: 32 << 20, StructBytes: 8 + 3*8*8})
		source, err := d.ElementsImage(0)
		if err != nil {
			t.Fatal(err)
		}
		if !registered { // the stand-in's compiler makes this of the source
			registered = true
			accinte.RegisterModule(string(source), map[string]accinte.Function{"copy_elements": accintetest.CopyElements})
		}
		dev := device.NewRuntime(name, d).Devices()[1]
		s, err := dev.NewStream(device.Normal)
		if err != nil {
			t.Fatal(err)
		}
		ctx := device.WithStream(context.Background(), s)
		must := func(x *tensor.Tensor, err error) *tensor.Tensor {
			if t.Helper(); err != nil {
				t.Fatal(err)
			}
			return x
		}
		host := must(tensor.FromSlice([]float32{0, 1.5, -2, 3, 4.9, 5}, 2, 3))
		x := must(tensor.EmptyOn(ctx, dev, dtype.Float32, 2, 3))
		y := must(tensor.EmptyOn(ctx, dev, dtype.Int16, 3, 2))
		back := must(tensor.Empty(dtype.Int16, 3, 2))
		for _, err := range []error{tensor.Copy(ctx, x, host), tensor.Copy(ctx, y, must(x.Transpose(0, 1))),
			tensor.Fill(ctx, must(y.Slice(0, 2, 3, 1)), 7), tensor.Copy(ctx, back, y), s.Synchronize(ctx)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := tensor.Slice[int16](back)
		if want := []int16{0, 3, 1, 4, 7, 7}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v (%v)", name, got, want, err)
		}
		x.Free()
		y.Free()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
