package comm

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// An Allocator makes tensors in the memory that communicators are fastest with: what peers on this host can map, or a
// device's. They can be made before there is a communicator, and serve all of the same backend and device. All methods
// are safe for concurrent use.
type Allocator struct {
	dev  *device.Device
	home *device.Stream // nothing is enqueued on it but the zeros of Zeros; nil for the host
	pool cache.PoolID   // of the backend's own memory; zero: the device's
}

// NewAllocator returns an allocator for communicators of a backend, such as "native", on a device, such as "cpu" or
// "accinte:1" (without an index, the current one of its type). Neither is opened by that. It's an *UnsupportedError if
// there is no such backend or device, and if the backend's library is one that gives out memory but is too old for it.
func NewAllocator(ctx context.Context, backendName, on string) (*Allocator, error) {
	at := Where{Op: "allocator", Reporter: -1}
	if !slices.Contains(backend.Names(), backendName) {
		return nil, &UnsupportedError{Where: at, Detail: backend.Unknown(backendName)}
	}
	d, err := openDevice(ctx, cmp.Or(on, device.Host))
	if err != nil {
		return nil, &UnsupportedError{Where: at, Detail: err.Error()}
	}
	if d.Properties().HostAccess {
		return &Allocator{dev: d}, nil
	}
	pool, err := PoolOf(backendName, d)
	if err != nil {
		return nil, err
	}
	return newAllocator(d, pool)
}

// PoolOf returns the pool, of a device's allocator, of the memory that a backend's library gives out and is fastest
// with; the zero one if the backend has no own. It's an *[UnsupportedError] if the library is too old.
func PoolOf(backendName string, d *device.Device) (cache.PoolID, error) {
	pool, err := backend.PoolOf(backendName, d)
	if err != nil {
		err = &UnsupportedError{Where: Where{Op: "allocator", Reporter: -1}, Detail: err.Error()}
	}
	return pool, err
}

func newAllocator(d *device.Device, pool cache.PoolID) (*Allocator, error) {
	home, err := takeStream(d, device.Normal)
	if err != nil {
		return nil, err
	}
	a := &Allocator{dev: d, home: home, pool: pool}
	runtime.AddCleanup(a, putStream, home)
	return a, nil
}

// Allocator returns the communicator's, which Empty and Zeros use. It may be used when the communicator has been
// finalized. It's an *[UnsupportedError] if the backend's library is one that gives out memory but is too old for it;
// Empty then has the device's.
func (c *Comm) Allocator() (*Allocator, error) {
	if p, ok := c.b.(backend.Pooled); ok && c.dev() != nil {
		pool, err := p.Pool()
		if err != nil {
			return nil, err
		}
		return newAllocator(c.dev().dev, pool)
	}
	return NewAllocator(context.Background(), c.backend, c.Device())
}

// Device is where the tensors are.
func (a *Allocator) Device() *device.Device { return a.dev }

// Empty returns a tensor with undefined contents. It's freed with the last tensor that refers to it. On a device any
// stream may use it at once. Copy, Fill and this package record the streams that use it. For other work, such as
// kernels, the program must call tensor.UsedBy before the last tensor is dropped or freed.
func (a *Allocator) Empty(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return tensor.EmptyIn(a.atHome(), a.dev, a.pool, dt, shape...)
}

// Zeros is Empty, filled with zeros when it returns.
func (a *Allocator) Zeros(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	if a.home == nil {
		return tensor.ZerosOn(a.atHome(), a.dev, dt, shape...)
	}
	t, err := a.Empty(dt, shape...)
	if err == nil {
		err = tensor.Fill(a.atHome(), t, uint8(0))
	}
	if err == nil {
		err = a.home.Synchronize(context.Background())
	}
	return t, err
}

// atHome is a context with the stream that Empty allocates for. Since no other work is ever enqueued on it, memory
// comes back only when all streams that are recorded as its users are done with it.
func (a *Allocator) atHome() context.Context { return device.WithStream(context.Background(), a.home) }

// Empty returns a tensor, with undefined contents, in memory that peers on this host can map: the fastest for
// collectives. In the communicator of a device it's memory of the device. If the backend's library gives out memory,
// it's from there, and registered with the library. See [Allocator].
func (c *Comm) Empty(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return c.made("empty", (*Allocator).Empty, dt, shape)
}

// Zeros is Empty, filled with zeros.
func (c *Comm) Zeros(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return c.made("zeros", (*Allocator).Zeros, dt, shape)
}

// made says whether it's the caller's type and shape that there can be no tensor of, or memory that can't be had.
func (c *Comm) made(op string, f func(*Allocator, dtype.DType, ...int) (*tensor.Tensor, error), dt dtype.DType,
	shape []int) (*tensor.Tensor, error) {
	if err := tensor.CheckShape(dt, shape...); err != nil {
		return nil, &InvalidArgumentError{Where: c.at(op), Detail: err.Error(), Err: err}
	}
	a := Allocator{dev: cpu.Device()}
	if d := c.dev(); d != nil {
		a = Allocator{dev: d.dev, home: d.home}
		if p, ok := c.b.(backend.Pooled); ok {
			a.pool, _ = p.Pool() // without one, the device's
		}
	}
	t, err := f(&a, dt, shape...)
	return t, c.deviceError(op, err)
}
