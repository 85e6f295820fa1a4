//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
)

// The process can't touch the device's memory, and can touch what is pinned.
func TestMemoryOfItsOwn(t *testing.T) {
	here(t, nil, func(t *testing.T, d *gpu.Driver) {
		device, pinned := must[driver.Ptr](t)(d.Malloc(0, 4096)), must[driver.Ptr](t)(d.MallocHost(4096))
		var pipe [2]int
		succeed(t, unix.Pipe(pipe[:]))
		write := func(p driver.Ptr) error { // the kernel says whether the address can be read
			at := uintptr(p)
			_, err := unix.Write(pipe[1], unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 8))
			return err
		}
		if err := write(device); !errors.Is(err, unix.EFAULT) {
			t.Errorf("memory of the device: %v", err)
		}
		if err := write(pinned); err != nil {
			t.Errorf("pinned memory: %v", err)
		}
	})
}

// There is as much memory as the environment says, and freed memory comes back.
func TestCapacity(t *testing.T) {
	here(t, []string{"EMULATED_GPU_MEMORY=67108864"}, func(t *testing.T, d *gpu.Driver) {
		p := must[driver.Ptr](t)(d.Malloc(0, 40<<20))
		if _, err := d.Malloc(0, 40<<20); !errors.Is(err, driver.ErrOutOfMemory) {
			t.Errorf("80 MiB of 64: %v", err)
		}
		succeed(t, d.Free(0, p))
		if q := must[driver.Ptr](t)(d.Malloc(0, 64<<20)); q == p {
			t.Error("the address of freed memory was given out again")
		}
	})
}

// The ninth stream shares the queue of the first: what that waits for holds both back, and no other one.
func TestQueues(t *testing.T) {
	here(t, nil, func(t *testing.T, d *gpu.Driver) {
		var streams [9]driver.StreamHandle
		for i := range streams {
			streams[i] = must[driver.StreamHandle](t)(d.StreamCreate(0, 0))
		}
		p := must[driver.Ptr](t)(d.Malloc(0, 4096))
		gate := make(chan struct{})
		succeed(t, d.HostFunc(streams[0], "hold", func() error { <-gate; return nil }))
		for _, s := range streams[1:] {
			succeed(t, d.Fill(s, p, 1, 4096))
		}
		for i, s := range streams[1:8] {
			if err := (accumulator{d: d, s: s}).wait(); err != nil {
				t.Errorf("stream %d: %v", i+1, err)
			}
		}
		if done := must[bool](t)(d.StreamQuery(streams[8])); done {
			t.Error("the ninth stream wasn't held back")
		}
		close(gate)
		succeed(t, (accumulator{d: d, s: streams[8]}).wait())
	})
}

// Launches have the vendor's limits.
func TestLimits(t *testing.T) {
	here(t, nil, func(t *testing.T, d *gpu.Driver) {
		a := newAccumulator(t, d)
		succeed(t, a.launch(driver.Dim{X: 2, Y: 3}, driver.Dim{X: 32}))
		for name, l := range map[string]driver.Launch{
			"65,536 blocks in y": {Grid: driver.Dim{Y: 65536}, Block: driver.Dim{X: 1}},
			"65,536 blocks in z": {Grid: driver.Dim{Z: 65536}, Block: driver.Dim{X: 1}},
			"2,048 threads":      {Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 2048}},
			"128 threads in z":   {Grid: driver.Dim{X: 1}, Block: driver.Dim{Z: 128}},
		} {
			if err := a.launch(l.Grid, l.Block); !errors.Is(err, driver.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !strings.HasPrefix(d.String(), "HIP") {
			return
		}
		if err := a.launch(driver.Dim{X: 1 << 24}, driver.Dim{X: 256}); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("2^32 threads: %v", err)
		}
	})
}
