package device_test

import (
	"context"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
)

func benchDevice(b *testing.B) (*device.Device, *device.Stream) {
	b.Helper()
	drv, err := accinte.New(accinte.Options{MemoryBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	d, err := device.NewRuntime("accinte", drv).Device(0)
	if err != nil {
		b.Fatal(err)
	}
	s, err := d.Stream(device.Normal)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return d, s
}

// BenchmarkRoundTrip enqueues a function and waits for it.
func BenchmarkRoundTrip(b *testing.B) {
	_, s := benchDevice(b)
	ctx := context.Background()
	f := func() error { return nil }
	for b.Loop() {
		if s.HostFunc("f", f) != nil || s.Synchronize(ctx) != nil {
			b.Fatal("failed")
		}
	}
}

// BenchmarkEnqueue enqueues functions, a hundred for each wait.
func BenchmarkEnqueue(b *testing.B) {
	_, s := benchDevice(b)
	ctx := context.Background()
	f := func() error { return nil }
	i := 0
	for b.Loop() {
		if s.HostFunc("f", f) != nil {
			b.Fatal("failed")
		}
		if i++; i%100 == 0 && s.Synchronize(ctx) != nil {
			b.Fatal("failed")
		}
	}
}

// BenchmarkReplay runs a graph of ten functions and waits for it.
func BenchmarkReplay(b *testing.B) {
	_, s := benchDevice(b)
	ctx := context.Background()
	g, err := device.Capture(s, func() error {
		for range 10 {
			if err := s.HostFunc("f", func() error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if g.Replay(s) != nil || s.Synchronize(ctx) != nil {
			b.Fatal("failed")
		}
	}
}

// BenchmarkMalloc compares the driver's allocations with the caching allocator's, 64 KiB each.
func BenchmarkMalloc(b *testing.B) {
	b.Run("driver", func(b *testing.B) {
		d, _ := benchDevice(b)
		for b.Loop() {
			p, err := d.Malloc(64 << 10)
			if err != nil || d.Free(p) != nil {
				b.Fatal("failed")
			}
		}
	})
	b.Run("cached", func(b *testing.B) {
		d, s := benchDevice(b)
		for b.Loop() {
			p, err := d.Alloc(64<<10, s)
			if err != nil || d.Dealloc(p) != nil {
				b.Fatal("failed")
			}
		}
	})
}
