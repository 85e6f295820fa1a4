package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/rng"
)

// Device is one device of a type. There is one *Device for each; they may be compared.
type Device struct {
	rt    *Runtime
	index int
	props Properties

	mu      sync.Mutex
	def     *Stream
	pools   [][]*Stream // by priority; made when first taken
	next    []int       // of each pool: whose turn it is
	created int64       // streams of NewStream so far, for their IDs
	gen     rng.Generator
	drawn   []*drawn  // by the graph that's being captured
	copies  *Function // copy_elements, once it's needed
	cache   atomic.Pointer[cache.Cache]
}

// Name is type and index, such as "accinte:1"; of the host, of which there is one, it's the type.
func (d *Device) Name() string {
	if name := d.rt.Name(); name != Host {
		return fmt.Sprintf("%s:%d", name, d.index)
	}
	return Host
}

func (d *Device) String() string { return d.Name() }

// Runtime is what the device belongs to.
func (d *Device) Runtime() *Runtime { return d.rt }

// Index is the device's number within its type.
func (d *Device) Index() int { return d.index }

// Properties describes the device.
func (d *Device) Properties() Properties { return d.props }

// Malloc allocates device memory straight from the driver; [Device.Alloc] is faster. If there isn't enough, it waits for
// memory that was freed under work.
func (d *Device) Malloc(bytes int) (Ptr, error) {
	p, err := d.rt.drv.Malloc(d.index, bytes)
	if r, ok := d.rt.drv.(driver.Reclaimer); ok && errors.Is(err, ErrOutOfMemory) {
		r.Reclaim(d.index)
		p, err = d.rt.drv.Malloc(d.index, bytes)
	}
	return p, err
}

// Free returns memory of Malloc.
func (d *Device) Free(p Ptr) error { return d.rt.drv.Free(d.index, p) }

// MemInfo returns free and total memory in bytes.
func (d *Device) MemInfo() (free, total int64, err error) { return d.rt.drv.MemInfo(d.index) }

// Synchronize waits for all work of the device.
func (d *Device) Synchronize(ctx context.Context) error { return d.rt.drv.Synchronize(ctx, d.index) }

// PeerCapable reports whether the device's kernels can be let touch a peer's memory: not its own, nor that of a device
// of another type.
func (d *Device) PeerCapable(peer *Device) (bool, error) {
	p, ok := d.rt.drv.(driver.Peers)
	if !ok || peer.rt != d.rt {
		return false, nil
	}
	return p.PeerCapable(d.index, peer.index)
}

// SetPeerAccess lets the device's kernels touch a peer's memory, or no longer.
func (d *Device) SetPeerAccess(peer *Device, enabled bool) error {
	p, err := optional[driver.Peers](d.rt, "set peer access")
	if err != nil {
		return err
	}
	if peer.rt != d.rt {
		return Errorf(ErrWrongDevice, d.Name(), "set peer access", "%s is of another type", peer.Name())
	}
	return p.SetPeerAccess(d.index, peer.index, enabled)
}

// close gives back what the device has for itself: cached memory and streams.
func (d *Device) close() (err error) {
	err = d.EmptyCache()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.def != nil {
		err = errors.Join(err, d.rt.drv.StreamDestroy(d.def.h))
	}
	for _, pool := range d.pools {
		for _, s := range pool {
			if s != nil {
				err = errors.Join(err, d.rt.drv.StreamDestroy(s.h))
			}
		}
	}
	d.def, d.pools, d.next = nil, nil, nil
	return err
}

// Bind makes the device the calling thread's current one, for libraries that go by that, and keeps the goroutine on the
// thread, until the function that it returns is called. See [driver.Threads].
func (d *Device) Bind() (unbind func(), err error) {
	runtime.LockOSThread()
	t, ok := d.rt.drv.(driver.Threads)
	if !ok {
		return runtime.UnlockOSThread, nil
	}
	before, err := t.Bind(d.index)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() { before(); runtime.UnlockOSThread() }, nil
}

// Adopt makes a stream that other code in the process has created with the vendor's library one that can be used here,
// until release is called. See [driver.Foreign]; for other drivers it's [Device.External].
func (d *Device) Adopt(h StreamHandle) (s *Stream, release func() error, err error) {
	f, ok := d.rt.drv.(driver.Foreign)
	if !ok {
		return d.External(h), func() error { return nil }, nil
	}
	if err := f.StreamAdopt(d.index, h); err != nil {
		return nil, nil, err
	}
	return d.External(h), func() error { return f.StreamAbandon(h) }, nil
}
