//go:build linux && (amd64 || arm64)

package comm_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// onBuffers opens a world on a device whose memory the process can't touch: OpenCL's without shared memory.
func onBuffers(t testing.TB, size int) []*comm.Comm {
	return open(t, size, func(int) []comm.NewOption {
		return []comm.NewOption{comm.WithFabric("shm"), comm.WithDevice("opencl:0")}
	})
}

// Collectives and messages of tensors that engines of the process can't touch go through pinned memory.
func TestStaged(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", filepath.Join(testutil.ModuleRoot(t), ".venvs", "opencl"))
	t.Setenv("CHORUS_OPENCL_SHARED_MEMORY", "false")
	rt, err := device.Load("opencl")
	if err == nil {
		err = rt.Err()
	}
	if err != nil {
		t.Skipf("left out: `make opencl` installs PoCL: %v", err)
	}
	if _, touchable := rt.Driver().(device.HostKernels); touchable {
		t.Fatal("the process can touch the memory")
	}
	t.Run("Done", testStagedDone)
	cfg := commtest.Config{Open: onBuffers, Device: true, Worlds: []int{2}}
	t.Run("Async", func(t *testing.T) { commtest.Async(t, cfg) })
	t.Run("PointToPoint", func(t *testing.T) { commtest.PointToPoint(t, cfg) })
	if !testutil.Short() {
		t.Run("Batches", func(t *testing.T) { commtest.Batches(t, cfg) })
		t.Run("Collectives", func(t *testing.T) { commtest.Collectives(t, cfg) })
		t.Run("InPlace", func(t *testing.T) { commtest.InPlace(t, cfg) })
	}
}

// The Work of an operation is completed when its result is on the device, for every stream.
func testStagedDone(t *testing.T) {
	comms := onBuffers(t, 2)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		const n = 1 << 20
		for k := range 5 {
			x, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, n)
			if err != nil {
				return err
			}
			if err := errors.Join(tensor.Fill(ctx, x, float64(k+1)), s.Synchronize(ctx)); err != nil {
				return err
			}
			var w comm.Work
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			<-w.Done()
			host := tensor.Must(tensor.Empty(dtype.Float32, n))
			if err := errors.Join(w.Err(), tensor.Copy(ctx, host, x), s.Synchronize(ctx)); err != nil {
				return err
			}
			if got, err := tensor.Slice[float32](host); err != nil || got[n-1] != float32(2*(k+1)) {
				return fmt.Errorf("the last element is %v, want %d (%w)", got[n-1], 2*(k+1), err)
			}
			x.Free()
		}
		return nil
	})
}
