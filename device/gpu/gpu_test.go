//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
)

// open makes a driver over a stand-in, which ends with the test.
func open(t testing.TB, o gputest.Options) (*gpu.Driver, *gputest.Library) {
	t.Helper()
	sim, err := gputest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := gpu.Supply(o.Name, "stand-in", sim.Table())
	if err == nil {
		err = lib.SupplyCompiler("stand-in", sim.Compiler())
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, sim
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, _ := open(t, gputest.Options{Name: name, MemoryBytes: 32 << 20})
			if !d.Waits(0) {
				t.Error("streams can't wait for words")
			}
			conformance(t, d)
		})
	}
}

func conformance(t *testing.T, d *gpu.Driver) {
	devicetest.Run(t, d, devicetest.Programs(50), devicetest.Module(testmodule.Image))
}
