package accl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// TestPeerToPeer exchanges the memory of an emulated device and an engine's: tensors of the device are the engine's
// operands, and a stream of the device reads and writes a peer-to-peer buffer of the engine. Nothing is staged, but
// with the flag; the bits are the same.
func TestPeerToPeer(t *testing.T) {
	const ranks, count = 3, 10_000
	drv, err := accinte.New(accinte.Options{Devices: 1, MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drv.Close() })
	dev, err := device.NewRuntime("accinte", drv).Device(0)
	if err != nil {
		t.Fatal(err)
	}
	results := map[bool][]float32{}
	for _, staged := range []bool{false, true} {
		devs, list := devices(ranks, abi.RDMA)
		ds := drivers(t, devs, Config{Ranks: list, Staged: staged})
		got := make([]float32, count)
		each(t, ds, func(ctx context.Context, d *Driver) (err error) {
			s, err := dev.NewStream(device.Normal)
			if err != nil {
				return err
			}
			defer s.Close()
			ctx = device.WithStream(ctx, s)
			x := make([]float32, count)
			for i := range x {
				x[i] = 1 / float32(i+d.Rank()+1)
			}
			in, err := tensor.EmptyOn(ctx, dev, dtype.Float32, count)
			if err != nil {
				return err
			}
			defer in.Free()
			if err := errors.Join(tensor.Copy(ctx, in, tensor.Of(x)), s.Synchronize(ctx)); err != nil {
				return err
			}
			a, err := d.Tensor(in)
			if err != nil {
				return err
			}
			defer a.Free()
			before := d.Traffic()
			b, err := d.Buffer(count, abi.Float32, P2P()) // of the engine
			if err != nil {
				return err
			}
			if err := d.Allreduce(ctx, abi.Sum, a, b, count); err != nil {
				return err
			}
			// The device takes the sum from the engine's buffer, and puts it in once more.
			theirs := device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))))
			mine := device.Ptr(uintptr(in.Pointer()))
			if err := errors.Join(s.Copy(mine, theirs, 4*count), s.Copy(theirs, mine, 4*count),
				s.Synchronize(ctx)); err != nil {
				return err
			}
			if err := d.Allreduce(ctx, abi.Sum, b, a, count); err != nil {
				return err
			}
			after := d.Traffic()
			moved := Traffic{after.Mapped - before.Mapped, after.Staged - before.Staged}
			want := Traffic{Mapped: 4 * 4 * count}
			if staged {
				want = Traffic{Mapped: 2 * 4 * count, Staged: 2 * 4 * count} // the engine's own buffer is mapped anyway
			}
			if moved != want {
				return fmt.Errorf("staged=%v: %+v, want %+v", staged, moved, want)
			}
			out := tensor.Must(tensor.Empty(dtype.Float32, count))
			if err := errors.Join(tensor.Copy(ctx, out, in), s.Synchronize(ctx)); err != nil {
				return err
			}
			if d.Rank() == 0 {
				values, err := tensor.Slice[float32](out)
				copy(got, values)
				return err
			}
			return nil
		})
		results[staged] = got
	}
	for i, x := range results[false] {
		if want := results[true][i]; x != want || x == 0 {
			t.Fatalf("element %d is %v peer to peer, %v staged", i, x, want)
		}
	}
}
