package comm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Tensors of an allocator, made before there is a communicator, are reduced in place.
func TestAllocators(t *testing.T) {
	ctx := context.Background()
	const n = 1 << 20
	var devices, hosts []*tensor.Tensor
	for _, on := range []string{"accinte:0", "accinte:1"} {
		a, err := comm.NewAllocator(ctx, "native", on)
		if err != nil || a.Device().Name() != on {
			t.Fatalf("%v: %v", on, err)
		}
		devices = append(devices, tensor.Must(a.Zeros(dtype.Float32, n)))
	}
	a, err := comm.NewAllocator(ctx, "native", "cpu")
	if err != nil || a.Device() != cpu.Device() {
		t.Fatal(err)
	}
	for range 2 {
		hosts = append(hosts, tensor.Must(a.Zeros(dtype.Float32, n)))
	}
	comms := onAccInte("shm")(t, 2)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x := devices[c.Rank()]
		err := errors.Join(tensor.Fill(ctx, x, 1.0), c.AllReduce(ctx, x, comm.Sum), holds(ctx, x, 2))
		if got := c.Traffic(); got.Mapped != 1 || got.Staged != 0 {
			t.Errorf("%+v", got)
		}
		if err := c.AllReduce(ctx, hosts[c.Rank()], comm.Sum); err != nil {
			return err
		}
		if got := c.Traffic(); got.Mapped != 2 || got.Staged != 0 {
			t.Errorf("%+v", got)
		}
		own, aerr := c.Allocator()
		if aerr == nil && own.Device() != c.Stream().Device() {
			t.Errorf("the communicator's allocator is for %v", own.Device())
		}
		return errors.Join(err, aerr)
	})
	finalizeAll(t, comms)
	for _, bad := range [][2]string{{"nonesuch", "cpu"}, {"native", "nonesuch"}, {"native", "accinte:9"}} {
		if _, err := comm.NewAllocator(ctx, bad[0], bad[1]); !errors.Is(err, comm.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Memory that can't be had isn't the caller's mistake, a shape that there can't be is.
func TestNoMemory(t *testing.T) {
	host, err := comm.New(t.Context(), comm.WithRank(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Finalize(t.Context())
	for _, c := range []*comm.Comm{host, onAccInte("mem")(t, 1)[0]} {
		for name, make := range map[string]func(dtype.DType, ...int) (*tensor.Tensor, error){"empty": c.Empty, "zeros": c.Zeros} {
			var internal *comm.InternalError
			if _, err := make(dtype.Uint8, 1<<62); !errors.As(err, &internal) {
				t.Errorf("%s of too much: %v", name, err)
			}
			for _, shape := range [][]int{{-1}, {1 << 32, 1 << 32}} {
				var invalid *comm.InvalidArgumentError
				if _, err := make(dtype.Uint8, shape...); !errors.As(err, &invalid) {
					t.Errorf("%s of %v: %v", name, shape, err)
				}
			}
		}
	}
}
