//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// touch reads a byte of a device's, and reports whether that faults.
func touch(p driver.Ptr) (faults bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faults = recover() != nil }()
	at := uintptr(p)
	_ = *(*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at)))
	return false
}

// The process can't touch the memory of a device without shared virtual memory, though it's the processor's own.
func TestBuffersCannotBeTouched(t *testing.T) {
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
			if touch(p.Add(at)) != buffers {
				t.Errorf("buffers %t: byte %d", buffers, at)
			}
		}
		if err := d.Free(0, p); err != nil {
			t.Error(err)
		}
	}
}
