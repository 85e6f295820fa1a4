package engine

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/kern"
)

// work is a copy, a fill, a kernel or a host function, as it was asked for. Graphs keep it; streams run it.
type work struct {
	kind     driver.ActivityKind
	name     string // empty: made up when needed
	dst, src driver.Ptr
	bytes    int
	between  driver.CopyKind
	value    byte
	operands []driver.Span
	kernel   func(views []unsafe.Pointer) error
	host     func() error
}

func (w *work) String() string {
	switch w.kind {
	case driver.ActivityCopy:
		return fmt.Sprintf("copy %d bytes %v", w.bytes, w.between)
	case driver.ActivityFill:
		return fmt.Sprintf("fill %d bytes", w.bytes)
	}
	return w.name
}

// bound is the memory that work uses, found and held.
type bound struct {
	dst, src view
	operands []view
}

func (b *bound) drop() {
	b.dst.drop()
	b.src.drop()
	for i := range b.operands {
		b.operands[i].drop()
	}
	b.operands = b.operands[:0]
}

// bind checks the arguments of work for a device and holds its memory. It does so for each run of a graph again.
func (e *Engine) bind(d *dev, w *work, b *bound) (err error) {
	defer func() {
		if err != nil {
			b.drop()
		}
	}()
	switch w.kind {
	case driver.ActivityCopy:
		return e.bindCopy(w, b)
	case driver.ActivityFill:
		if w.bytes <= 0 {
			return driver.Errorf(driver.ErrInvalidArgument, d.name, "fill", "%d bytes", w.bytes)
		}
		if b.dst, err = e.acquire("fill", w.dst, w.bytes); err != nil {
			return err
		}
		return e.touch(d, "fill", w.dst, &b.dst, false)
	case driver.ActivityKernel:
		if w.kernel == nil {
			return driver.Errorf(driver.ErrInvalidArgument, d.name, "launch", "%s: no function", w.name)
		}
		for i, o := range w.operands {
			v, err := e.acquire("launch", o.Ptr, o.Bytes)
			if err == nil {
				b.operands = append(b.operands, v)
				err = e.touch(d, "launch", o.Ptr, &b.operands[i], true)
			}
			if err != nil {
				return fmt.Errorf("operand %d of %s: %w", i, w.name, err)
			}
		}
	case driver.ActivityHost:
		if w.host == nil {
			return driver.Errorf(driver.ErrInvalidArgument, d.name, "host function", "%s: no function", w.name)
		}
	}
	return nil
}

// touch checks that a device may touch memory itself.
func (e *Engine) touch(d *dev, op string, p driver.Ptr, v *view, host bool) error {
	switch {
	case v.typ == driver.HostMemory && host:
	case v.typ != driver.DeviceMemory:
		return driver.Errorf(driver.ErrWrongKind, d.name, op, "%v is %v memory, not the device's", p, v.typ)
	case v.dev != d.index && !e.CanTouch(d.index, v.dev):
		return driver.Errorf(driver.ErrWrongDevice, d.name, op,
			"%v is memory of device %d, to which device %d has no access (see SetPeerAccess)", p, v.dev, d.index)
	}
	return nil
}

func (e *Engine) bindCopy(w *work, b *bound) (err error) {
	if w.bytes <= 0 {
		return driver.Errorf(driver.ErrInvalidArgument, e.name, "copy", "%d bytes", w.bytes)
	}
	if w.between > driver.CopyDefault {
		return driver.Errorf(driver.ErrInvalidArgument, e.name, "copy", "%v", w.between)
	}
	if b.dst, err = e.acquire("copy: destination", w.dst, w.bytes); err != nil {
		return err
	}
	if b.src, err = e.acquire("copy: source", w.src, w.bytes); err != nil {
		return err
	}
	if w.between != driver.CopyDefault {
		toDevice := w.between == driver.HostToDevice || w.between == driver.DeviceToDevice
		fromDevice := w.between == driver.DeviceToHost || w.between == driver.DeviceToDevice
		for _, side := range []struct {
			name string
			p    driver.Ptr
			v    *view
			want bool
		}{{"destination", w.dst, &b.dst, toDevice}, {"source", w.src, &b.src, fromDevice}} {
			if (side.v.typ == driver.DeviceMemory) != side.want {
				return driver.Errorf(driver.ErrWrongKind, e.name, "copy", "%v: the %s %v is %v memory", w.between, side.name,
					side.p, side.v.typ)
			}
		}
	}
	if w.dst < w.src.Add(w.bytes) && w.src < w.dst.Add(w.bytes) {
		return driver.Errorf(driver.ErrInvalidArgument, e.name, "copy", "the ranges of %d bytes at %v and %v overlap",
			w.bytes, w.dst, w.src)
	}
	return nil
}

// execute runs bound work of a stream of a device, and returns what it failed with.
func (e *Engine) execute(d *dev, level int, w *work, b *bound) (err error) {
	if w.kind != driver.ActivityHost {
		d.units.acquire(level)
		defer d.units.release()
	}
	defer func() {
		if r := recover(); r != nil {
			err = e.panicked(r)
		}
	}()
	switch w.kind {
	case driver.ActivityCopy:
		return e.copyBytes(w, b)
	case driver.ActivityFill:
		fill(unsafe.Slice((*byte)(b.dst.p), w.bytes), w.value)
	case driver.ActivityKernel:
		views := make([]unsafe.Pointer, len(b.operands))
		for i := range views {
			views[i] = b.operands[i].p
		}
		return w.kernel(views)
	case driver.ActivityHost:
		return w.host()
	}
	return nil
}

// fill sets bytes in runs, between which the goroutine can be stopped.
func fill(b []byte, value byte) {
	const run = 256 << 10
	head := b[:min(len(b), run)]
	for i := range head {
		head[i] = value
	}
	for rest := range slices.Chunk(b[len(head):], run) {
		copy(rest, head)
	}
}

// stageBytes is how much of a copy between devices that can't touch each other is on the host at a time.
const stageBytes = 1 << 20

func (e *Engine) copyBytes(w *work, b *bound) error {
	across := b.dst.typ == driver.DeviceMemory && b.src.typ == driver.DeviceMemory && b.dst.dev != b.src.dev
	if !across {
		kern.Copy(b.dst.p, b.src.p, w.bytes)
		return nil
	}
	if e.CanTouch(b.dst.dev, b.src.dev) || e.CanTouch(b.src.dev, b.dst.dev) {
		kern.Copy(b.dst.p, b.src.p, w.bytes)
		e.copies.direct.Add(1)
		e.copies.directBytes.Add(uint64(w.bytes))
		return nil
	}
	stage, err := hostmem.Alloc(min(w.bytes, stageBytes))
	if err != nil {
		return err
	}
	defer stage.Free()
	for off := 0; off < w.bytes; off += stageBytes {
		n := min(stageBytes, w.bytes-off)
		kern.Copy(stage.Pointer(), unsafe.Add(b.src.p, off), n)
		kern.Copy(unsafe.Add(b.dst.p, off), stage.Pointer(), n)
	}
	e.copies.staged.Add(1)
	e.copies.stagedBytes.Add(uint64(w.bytes))
	return nil
}

// panicked turns what work panicked with into an error. A fault at an address that only devices have is named.
func (e *Engine) panicked(r any) error {
	if f, ok := r.(interface{ Addr() uintptr }); ok {
		if p := driver.Ptr(f.Addr()); e.Owned != nil && e.Owned(p) {
			return driver.Errorf(driver.ErrHostAccess, e.name, "", "host code touched device memory at %v", p)
		}
	}
	if err, ok := r.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", r)
}
