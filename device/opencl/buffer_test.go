//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// touch reports whether reading a byte at an address is a fault. The system reads it, since a library may have a handler
// of faults of its own.
func touch(t *testing.T, w *os.File, p driver.Ptr) (fault bool) {
	t.Helper()
	n, _, e := unix.Syscall(unix.SYS_WRITE, w.Fd(), uintptr(p), 1)
	if e != 0 && !errors.Is(e, syscall.EFAULT) || e == 0 && n != 1 {
		t.Errorf("writing the byte at %v: %d, %v", p, n, e)
	}
	return e != 0
}

// The addresses of buffers are no memory of this process, as a GPU's aren't.
func TestBuffersCannotBeTouched(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, buffers := range []bool{true, false} {
		d := open(t, opencl.Options{Buffers: buffers})
		if _, touchable := d.(driver.HostKernels); touchable == buffers {
			t.Errorf("buffers %t: touchable %t", buffers, touchable)
		}
		p, err := d.Malloc(0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 999} {
			if touch(t, w, p.Add(at)) != buffers {
				t.Errorf("buffers %t: byte %d", buffers, at)
			}
		}
		if err := d.Free(0, p); err != nil {
			t.Error(err)
		}
	}
}
