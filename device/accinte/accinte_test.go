package accinte

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

func TestSmoke(t *testing.T) {
	drv, err := New(Options{MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	rt := device.NewRuntime(Name, drv)
	d, _ := rt.Device(0)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := d.Malloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Stream(device.High)
	if err != nil {
		t.Fatal(err)
	}
	in, out := []byte("hello"), make([]byte, 5)
	if err := s.CopyIn(ctx, p, in); err != nil {
		t.Fatal(err)
	}
	if err := s.CopyOut(ctx, out, p); err != nil {
		t.Fatal(err)
	}
	if string(out) != "hello" {
		t.Error(out)
	}
	if _, err := rt.HostBytes(p, 1); !errors.Is(err, device.ErrHostAccess) {
		t.Error(err)
	}
	boom := errors.New("boom")
	s.HostFunc("bad", func() error { return boom })
	err = s.Synchronize(ctx)
	t.Log(err)
	if !errors.Is(err, boom) || !errors.Is(err, device.ErrFailed) {
		t.Error(err)
	}
	err = s.HostFunc("touch", func() error { *(*byte)(pointer(uintptr(p))) = 1; return nil })
	t.Log(err, s.Recover(ctx))
	s.HostFunc("touch", func() error { *(*byte)(pointer(uintptr(p))) = 1; return nil })
	t.Log(s.Recover(ctx))
}

func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
