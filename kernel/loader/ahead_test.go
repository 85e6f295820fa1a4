package loader

import (
	"context"
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
)

// Waiting for kernels that are being compiled ends with them, or with the caller's patience.
func TestSettle(t *testing.T) {
	drv, err := accinte.New(accinte.Options{Devices: 1, MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.NewRuntime("accinte", drv).Device(0)
	if err != nil {
		t.Fatal(err)
	}
	l := &Loader{dev: dev}
	l.CompileAhead()
	l.ahead.begin()
	for kind, of := range map[device.Kind]func() (context.Context, context.CancelFunc){
		device.ErrCanceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		device.ErrTimeout:  func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 0) },
	} {
		ctx, cancel := of()
		cancel()
		if err := l.Settle(ctx); !errors.Is(err, kind) {
			t.Errorf("%v, want %v", err, kind)
		}
	}
	l.ahead.end()
	if err := l.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}
