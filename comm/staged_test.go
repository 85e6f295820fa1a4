//go:build linux && (amd64 || arm64)

package comm_test

import (
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/internal/testutil"
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
	cfg := commtest.Config{Open: onBuffers, Device: true, Worlds: []int{2}}
	t.Run("Async", func(t *testing.T) { commtest.Async(t, cfg) })
	t.Run("PointToPoint", func(t *testing.T) { commtest.PointToPoint(t, cfg) })
	if !testutil.Short() {
		t.Run("Batches", func(t *testing.T) { commtest.Batches(t, cfg) })
		t.Run("Collectives", func(t *testing.T) { commtest.Collectives(t, cfg) })
		t.Run("InPlace", func(t *testing.T) { commtest.InPlace(t, cfg) })
	}
}
