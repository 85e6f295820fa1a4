//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
)

// Memory that was freed behind a stream's work is there again when the stream has got there.
func TestMemoryFreedUnderWork(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		d, _ := open(t, gputest.Options{Name: name, MemoryBytes: 64 << 20})
		dev := device.NewRuntime(name, d).Devices()[0]
		for what, take := range map[string]struct {
			alloc func(n int) (device.Ptr, error)
			free  func(p device.Ptr) error
		}{
			"Alloc":  {func(n int) (device.Ptr, error) { return dev.Alloc(n, nil) }, dev.Dealloc},
			"Malloc": {dev.Malloc, dev.Free},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				s, err := dev.DefaultStream()
				if err != nil {
					t.Fatal(err)
				}
				gate := make(chan struct{})
				var blocks []device.Ptr
				for range 2 {
					p, err := take.alloc(24 << 20)
					if err != nil {
						t.Fatal(err)
					}
					blocks = append(blocks, p)
				}
				if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
					t.Fatal(err)
				}
				for _, p := range blocks {
					if err := take.free(p); err != nil {
						t.Fatal(err)
					}
				}
				go close(gate)
				p, err := take.alloc(50 << 20)
				if err == nil {
					err = take.free(p)
				}
				if err != nil {
					t.Error(err)
				}
				if err := dev.EmptyCache(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Giving memory back never waits for a function of the host on another stream, since the caller may have to end that.
func TestMemoryFreedBesideAFunction(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, _ := open(t, gputest.Options{Name: name, MemoryBytes: 64 << 20})
			dev := device.NewRuntime(name, d).Devices()[0]
			working, held := must(dev.NewStream(0)), must(dev.NewStream(0))
			p := must(dev.Malloc(24 << 20))
			work, hold := make(chan struct{}), make(chan struct{})
			wait := func(c chan struct{}) func() error { return func() error { <-c; return nil } }
			succeed(t, working.HostFunc("work", wait(work)))
			succeed(t, dev.Free(p))
			succeed(t, held.HostFunc("hold", wait(hold)))
			close(work)
			succeed(t, working.Synchronize(t.Context())) // which gives back what it can
			close(hold)
			succeed(t, held.Synchronize(t.Context()))
			if free, total, err := dev.MemInfo(); err != nil || free != total {
				t.Errorf("%d of %d bytes are free: %v", free, total, err)
			}
		})
	}
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
