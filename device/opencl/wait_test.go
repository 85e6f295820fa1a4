//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// meeting has a function whose groups wait for each other, for a limited time, and write how many came.
const meeting = `kernel void meet(global int *at, int groups) {
	global int *come = at + groups;
	atomic_add(come, 1);
	int n = 0;
	for (int k = 0; k < 400000000 && n < groups; k++)
		n = atomic_add(come, 0);
	at[get_group_id(0)] = n;
}`

// A processor's kernels run on all its units while somebody waits for the stream.
func TestAllUnitsWork(t *testing.T) {
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("the device's compiler doesn't work here")
	}
	p, err := d.Properties(0)
	if err != nil {
		t.Fatal(err)
	}
	hosted, ok := d.(driver.HostKernels)
	if !p.Processor || !ok {
		t.Skip("no processor")
	}
	m := d.(driver.Modules)
	h, err := m.ModuleLoad(0, []byte(meeting))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.ModuleFunction(h, "meet")
	if err != nil {
		t.Fatal(err)
	}
	groups := min(p.Units, 8)
	at, err := d.Malloc(0, 4*(groups+1))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(0, at)
	view, err := hosted.View(at, 4*(groups+1))
	if err != nil {
		t.Fatal(err)
	}
	words := unsafe.Slice((*byte)(view), 4*(groups+1))
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.StreamDestroy(s)
	for _, elements := range []int{0, groups} { // of brief work, too, for which the caller's thread is in the library
		clear(words)
		l := driver.Launch{Grid: driver.Dim{X: groups}, Args: new(driver.Args).Pointer(at).Int32(int32(groups)),
			Elements: elements}
		if err := m.FunctionLaunch(s, f, l); err != nil {
			t.Fatal(err)
		}
		if err := d.StreamSynchronize(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for k := range groups {
			if n := int(binary.NativeEndian.Uint32(words[4*k:])); n != groups {
				t.Errorf("group %d of %d met %d, with %d elements", k, groups, n, elements)
			}
		}
	}
}

// turning is a function that takes a while.
const turning = `kernel void turn(global uint *at, uint n) {
	uint x = get_global_id(0);
	for (uint k = 0; k < n; k++)
		x = x * 1664525u + (x >> 3) + k;
	at[get_global_id(0)] = x;
}`

// A wait for brief work lasts until its end, on the calling thread. It ends with its context if there's other work, on
// whichever stream.
func TestWaitForBriefWork(t *testing.T) {
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("the device's compiler doesn't work here")
	}
	if p, err := d.Properties(0); err != nil || !p.Processor {
		t.Skip("no processor: ", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m := d.(driver.Modules)
	h, err := m.ModuleLoad(0, []byte(turning))
	must(err)
	f, err := m.ModuleFunction(h, "turn")
	must(err)
	at, err := d.Malloc(0, 128)
	must(err)
	defer d.Free(0, at)
	var streams [2]driver.StreamHandle
	for k := range streams {
		streams[k], err = d.StreamCreate(0, 0)
		must(err)
		defer d.StreamDestroy(streams[k])
	}
	s, other := streams[0], streams[1]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	synchronize := func(ctx context.Context) func() error {
		return func() error { return d.StreamSynchronize(ctx, s) }
	}
	launch := func(elements int) {
		t.Helper()
		must(m.FunctionLaunch(s, f, driver.Launch{Args: new(driver.Args).Pointer(at).Uint32(4 << 20), Elements: elements}))
	}
	launch(0)
	must(synchronize(t.Context())()) // compiled
	held := func(s driver.StreamHandle) (let func()) {
		over := make(chan struct{})
		must(d.HostFunc(s, "held", func() error { <-over; return nil }))
		return func() { close(over) }
	}
	const copied = -1
	for _, x := range []struct {
		name     string
		elements []int // of launches, or a copy
		held     driver.StreamHandle
		wait     func() error
		want     error
	}{
		{"brief work", []int{1, 1}, 0, synchronize(ended), nil},
		{"brief work of the device", []int{1}, 0, func() error { return d.Synchronize(ended, 0) }, nil},
		{"a copy of its result", []int{1, copied}, 0, synchronize(ended), nil},
		{"work of which nothing is known", []int{0}, 0, synchronize(ended), driver.ErrCanceled},
		{"other work behind it", []int{1, 0}, 0, synchronize(ended), driver.ErrCanceled},
		{"too much brief work", []int{1 << 25, 1 << 26}, 0, synchronize(ended), driver.ErrCanceled},
		{"a function before it", []int{1}, s, synchronize(ended), driver.ErrCanceled},
		{"a function on another stream", []int{1}, other, synchronize(ended), driver.ErrCanceled},
		{"brief work again", []int{1}, 0, synchronize(ended), nil},
	} {
		let := func() {}
		if x.held != 0 {
			let = held(x.held)
		}
		for _, n := range x.elements {
			if n == copied {
				must(d.Copy(s, at.Add(64), at, 64, driver.CopyDefault))
				continue
			}
			launch(n)
		}
		if err := x.wait(); !errors.Is(err, x.want) {
			t.Errorf("%s: %v instead of %v", x.name, err, x.want)
		}
		let()
		must(d.Synchronize(t.Context(), 0))
	}
}

// A wait for a stream that a function of the host holds back ends at its deadline, and uses no processor's time.
func TestWaitForHeldStream(t *testing.T) {
	d := open(t, opencl.Options{})
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	let := make(chan struct{})
	if err := d.HostFunc(s, "held", func() error { <-let; return nil }); err != nil {
		t.Fatal(err)
	}
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	for range 2 { // the second one has a thread in the library already
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := d.StreamSynchronize(ctx, s); !errors.Is(err, driver.ErrTimeout) {
			t.Errorf("%v instead of a time-out", err)
		}
	}
	if took := used() - before; took > 100*time.Millisecond {
		t.Errorf("waits of 200 ms used %v of the processor's time", took)
	}
	close(let)
	if err := d.StreamSynchronize(t.Context(), s); err != nil {
		t.Error(err)
	}
	if err := d.StreamDestroy(s); err != nil {
		t.Error(err)
	}
}
