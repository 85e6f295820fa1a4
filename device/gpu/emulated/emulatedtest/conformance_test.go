//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// The suite of drivers passes. Its cases hold back more streams than a device has queues by default.
func TestConformance(t *testing.T) {
	here(t, []string{"EMULATED_GPU_DEVICES=2", "EMULATED_GPU_QUEUES=64"}, func(t *testing.T, d *gpu.Driver) {
		if !d.Waits(0) {
			t.Error("streams can't wait for words")
		}
		devicetest.Run(t, d, devicetest.Programs(testutil.Pick(10, 50)), devicetest.Module(devicetest.Source),
			devicetest.Skip("IPC", "IPCEvents")) // the libraries lack these
	})
}
