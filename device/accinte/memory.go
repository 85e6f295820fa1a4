package accinte

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
)

// owned reports whether an address is a device pointer, allocated or not.
func (d *Driver) owned(p driver.Ptr) bool {
	for _, a := range d.arenas {
		if a.contains(uintptr(p)) {
			return true
		}
	}
	return d.imports.contains(uintptr(p))
}

// Malloc is [driver.Memory].Malloc. Memory begins on a page.
func (d *Driver) Malloc(dev int, bytes int) (driver.Ptr, error) {
	if err := d.Check("allocate", dev); err != nil {
		return 0, err
	}
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), "allocate", "%d bytes", bytes)
	}
	a := d.arenas[dev]
	if bytes > a.limit {
		return 0, d.outOfMemory(dev, bytes)
	}
	at, ok := a.place(bytes)
	if !ok {
		return 0, driver.Errorf(driver.ErrOutOfMemory, d.name(dev), "allocate", "no range of %d addresses is free", bytes)
	}
	size := roundUp(bytes, pageSize)
	if enough, err := a.commit(at, size); err != nil {
		a.unplace(at, bytes)
		return 0, driver.Errorf(driver.ErrOutOfMemory, d.name(dev), "allocate", "the host has no memory for it: %w", err)
	} else if !enough {
		a.unplace(at, bytes)
		return 0, d.outOfMemory(dev, bytes)
	}
	p := driver.Ptr(uintptr(a.mirror)).Add(at)
	d.space.Add(&engine.Alloc{Base: p, Bytes: bytes, View: unsafe.Add(a.seg.Base(), at), Type: driver.DeviceMemory,
		Device: dev, Release: func() {
			// Decommitting whole pages of what was committed can't fail but by a bug, which the figures would show.
			_ = a.decommit(at, size)
			a.unplace(at, bytes)
		}})
	return p, nil
}

func (d *Driver) outOfMemory(dev, bytes int) error {
	a := d.arenas[dev]
	return driver.Errorf(driver.ErrOutOfMemory, d.name(dev), "allocate", "%d bytes asked for, %d of %d are free", bytes,
		a.available(), a.limit)
}

// Free is [driver.Memory].Free. Work that was enqueued keeps the memory until it has run.
func (d *Driver) Free(dev int, p driver.Ptr) error {
	if err := d.Check("free", dev); err != nil {
		return err
	}
	if p == 0 {
		return nil
	}
	return d.space.Remove("free", p, func(a *engine.Alloc) error {
		switch {
		case a.Type != driver.DeviceMemory:
			return driver.Errorf(driver.ErrWrongKind, d.name(dev), "free", "%v is %v memory", p, a.Type)
		case a.Device != dev:
			return driver.Errorf(driver.ErrWrongDevice, d.name(dev), "free", "%v is memory of %s", p, d.name(a.Device))
		case a.Remote:
			return driver.Errorf(driver.ErrInvalidPointer, d.name(dev), "free", "%v belongs to another process: close it", p)
		case a.Mapped != nil:
			return driver.Errorf(driver.ErrInvalidPointer, d.name(dev), "free", "%v is reserved: unmap and release it", p)
		}
		return nil
	})
}

// MemInfo is [driver.Memory].MemInfo.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	if err := d.Check("memory info", dev); err != nil {
		return 0, 0, err
	}
	a := d.arenas[dev]
	return int64(a.available()), int64(a.limit), nil
}

func (d *Driver) name(dev int) string { return fmt.Sprintf("%s:%d", d.opts.Name, dev) }
