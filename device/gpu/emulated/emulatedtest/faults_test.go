//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
)

var one = driver.Dim{X: 1}

// The environment may have the device lost after some kernels, for good.
func TestLost(t *testing.T) {
	here(t, []string{"EMULATED_GPU_LOST_AFTER=2"}, func(t *testing.T, d *gpu.Driver) {
		a := newAccumulator(t, d)
		for range 2 {
			succeed(t, a.launch(one, one))
		}
		succeed(t, a.wait())
		succeed(t, a.launch(one, one))
		wants(t, a.wait(), "unknown error")
		_, err := d.Malloc(0, 64)
		wants(t, err, "unknown error")
	})
}

// One kernel may fail.
func TestFails(t *testing.T) {
	here(t, []string{"EMULATED_GPU_FAIL_AT=1"}, func(t *testing.T, d *gpu.Driver) {
		a := newAccumulator(t, d)
		succeed(t, a.launch(one, one))
		wants(t, a.wait(), "unspecified launch failure")
	})
}

// Kernels may begin late, so that a stream is behind the program.
func TestDelay(t *testing.T) {
	here(t, []string{"EMULATED_GPU_DELAY=100000"}, func(t *testing.T, d *gpu.Driver) {
		a := newAccumulator(t, d)
		var events [2]driver.EventHandle
		for i := range events {
			events[i] = must[driver.EventHandle](t)(d.EventCreate(0, true))
		}
		succeed(t, d.EventRecord(events[0], a.s))
		succeed(t, a.launch(one, one))
		succeed(t, d.EventRecord(events[1], a.s))
		succeed(t, a.wait())
		if took := must[time.Duration](t)(d.EventElapsed(events[0], events[1])); took < 100*time.Millisecond {
			t.Errorf("the kernel took %v", took)
		}
	})
}

func wants(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, and not %q", err, text)
	}
}
