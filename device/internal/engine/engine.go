package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// Device says how one device of an engine is built.
type Device struct {
	Units  int // copies and kernels that run at once; at least 1
	Levels int // of priority; at least 1
}

// Engine runs the work of a driver's devices. It implements, for the driver that embeds it, [driver.Streams],
// [driver.Events], [driver.Graphs], [driver.HostKernels], [driver.Modules], [driver.Tracer] and the parts of
// [driver.Memory] that are the same for all.
type Engine struct {
	*Space

	// CanTouch reports whether kernels of dev may touch memory of another device, and copies go directly. It must be set
	// before use if there are several devices.
	CanTouch func(dev, other int) bool

	devs    []*dev
	numbers base.Numbers
	streams *base.Handles[driver.StreamHandle, *stream]
	events  *base.Handles[driver.EventHandle, *event]
	graphs  *base.Handles[driver.GraphHandle, *graph]
	execs   *base.Handles[driver.ExecHandle, *exec]

	modules   *base.Handles[driver.ModuleHandle, *module]
	functions *base.Handles[driver.FunctionHandle, *function]
	modmu     sync.Mutex // guards which functions modules have

	capmu  sync.Mutex // guards captures and membership in them
	trace  traces.Slot
	copies counters
}

type dev struct {
	index  int
	name   string
	levels int
	units  units

	mu      sync.Mutex
	streams map[*stream]struct{} // alive, or destroyed and with work to do
}

// New makes an engine of devices called name:0 and so on, whose memory is what space says.
func New(name string, space *Space, devs ...Device) *Engine {
	e := &Engine{Space: space}
	space.name = name
	e.numbers.Driver = name
	e.numbers.Tag()
	e.streams = base.NewHandles[driver.StreamHandle, *stream](&e.numbers, "stream")
	e.events = base.NewHandles[driver.EventHandle, *event](&e.numbers, "event")
	e.graphs = base.NewHandles[driver.GraphHandle, *graph](&e.numbers, "graph")
	e.execs = base.NewHandles[driver.ExecHandle, *exec](&e.numbers, "instantiated graph")
	e.modules = base.NewHandles[driver.ModuleHandle, *module](&e.numbers, "module")
	e.functions = base.NewHandles[driver.FunctionHandle, *function](&e.numbers, "function")
	for i, d := range devs {
		e.devs = append(e.devs, &dev{
			index: i, name: fmt.Sprintf("%s:%d", name, i), levels: d.Levels, streams: map[*stream]struct{}{},
			units: units{free: d.Units, waiting: make([][]chan struct{}, d.Levels)},
		})
	}
	return e
}

// DeviceCount is [driver.Driver].DeviceCount.
func (e *Engine) DeviceCount() (int, error) { return len(e.devs), nil }

// Check reports an index that is not one of the devices'.
func (e *Engine) Check(op string, index int) error {
	_, err := e.dev(op, index)
	return err
}

func (e *Engine) dev(op string, index int) (*dev, error) {
	if index < 0 || index >= len(e.devs) {
		return nil, driver.Errorf(driver.ErrWrongDevice, e.name, op, "there is no device %d: the index must be in [0, %d)",
			index, len(e.devs))
	}
	return e.devs[index], nil
}

// Synchronize is [driver.Driver].Synchronize.
func (e *Engine) Synchronize(ctx context.Context, index int) error {
	d, err := e.dev("synchronize", index)
	if err != nil {
		return err
	}
	var room [16]*stream
	list := room[:0]
	d.mu.Lock()
	for s := range d.streams {
		list = append(list, s)
	}
	d.mu.Unlock()
	for _, s := range list {
		if err := s.refuseCaptured("synchronize the device"); err != nil {
			return err
		}
	}
	// All markers first, so that what is waited for is the work of this moment.
	var ends [len(room)]*point
	tails := ends[:0]
	for _, s := range list {
		tails = append(tails, s.tail())
	}
	var first error
	for i, s := range list {
		err := s.await(ctx, "synchronize", tails[i])
		if _, failed := errors.AsType[*driver.WorkError](err); err != nil && !failed {
			return err // it gave up
		}
		if err != nil {
			first = earlier(first, err)
		}
	}
	return first
}

// earlier returns the error whose failure came first.
func earlier(a, b error) error {
	var fa, fb *driver.WorkError
	if a == nil || errors.As(a, &fa) && errors.As(b, &fb) && fb.At.Before(fa.At) {
		return b
	}
	return a
}

// Counters are the copies between devices that ran.
type Counters struct {
	Direct, Staged           uint64 // one device's memory to another's; by way of the host
	DirectBytes, StagedBytes uint64
}

type counters struct{ direct, staged, directBytes, stagedBytes atomic.Uint64 }

// Counters returns the counts since the engine was made.
func (e *Engine) Counters() Counters {
	c := &e.copies
	return Counters{c.direct.Load(), c.staged.Load(), c.directBytes.Load(), c.stagedBytes.Load()}
}

// Waiting is how many copies and kernels wait for one of a device's units.
func (e *Engine) Waiting(index int) (n int) {
	d, err := e.dev("", index)
	if err != nil {
		return 0
	}
	d.units.mu.Lock()
	defer d.units.mu.Unlock()
	for _, level := range d.units.waiting {
		n += len(level)
	}
	return n
}

// Live is what a leak check looks at.
type Live struct{ Streams, Events, Graphs, Execs, Modules, Allocations int }

// Live counts what was made and not destroyed, with streams that still run off their work.
func (e *Engine) Live() (l Live) {
	for _, d := range e.devs {
		d.mu.Lock()
		l.Streams += len(d.streams)
		d.mu.Unlock()
	}
	l.Events, l.Graphs, l.Execs, l.Modules = e.events.Len(), e.graphs.Len(), e.execs.Len(), e.modules.Len()
	e.Space.mu.RLock()
	defer e.Space.mu.RUnlock()
	l.Allocations = len(e.Space.allocs)
	return l
}
