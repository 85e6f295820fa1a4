package device

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// Event is a point in the order of a stream's work. The zero Event is ready for use and stands for nothing; it becomes
// an event of the device of the first stream that records it. It must not be copied. Close it, or the garbage collector
// will.
type Event struct {
	// Timing makes the event keep the time at which it happens. Set it before the first record.
	Timing bool

	// Interprocess makes the event one that other processes can open by its IPCHandle; it can't have Timing. Set it before
	// the first record. See [driver.IPCEvents].
	Interprocess bool

	mu      sync.Mutex
	dev     *Device
	h       EventHandle
	timed   bool
	cleanup runtime.Cleanup
}

// handle returns the device and the driver's handle, 0 before the first record.
func (e *Event) handle() (*Device, EventHandle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dev, e.h
}

func (e *Event) record(s *Stream) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.h == 0 {
		if err := e.make(s.dev); err != nil {
			return err
		}
	}
	if e.dev != s.dev {
		return Errorf(ErrWrongDevice, s.dev.Name(), "record", "Event device %s does not match recording stream's device %s.",
			e.dev.Name(), s.dev.Name())
	}
	return s.drv().EventRecord(e.h, s.h)
}

// make makes the event one of a device. The lock is held.
func (e *Event) make(d *Device) error {
	if !e.Interprocess {
		h, err := d.rt.drv.EventCreate(d.index, e.Timing)
		if err == nil {
			e.become(d, h)
		}
		return err
	}
	if e.Timing {
		return Errorf(ErrInvalidArgument, d.Name(), "create event", "an event of several processes keeps no time")
	}
	ipc, err := optional[driver.IPCEvents](d.rt, "create event")
	if err != nil {
		return err
	}
	h, err := ipc.IPCEventCreate(d.index)
	if err == nil {
		e.become(d, h)
	}
	return err
}

func (e *Event) become(d *Device, h EventHandle) {
	drv := d.rt.drv
	e.dev, e.h, e.timed = d, h, e.Timing
	e.cleanup = runtime.AddCleanup(e, func(h EventHandle) { _ = drv.EventDestroy(h) }, h)
}

// IPCHandle describes an Interprocess event for [OpenEvent] in another process of the host, as bytes that are good
// while the event is. If it was never recorded it becomes an event of d.
func (e *Event) IPCHandle(d *Device) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.Interprocess {
		return nil, Errorf(ErrInvalidArgument, d.Name(), "IPC handle", "the event was not made for other processes")
	}
	if e.h == 0 {
		if err := e.make(d); err != nil {
			return nil, err
		}
	}
	ipc, err := optional[driver.IPCEvents](e.dev.rt, "IPC handle")
	if err != nil {
		return nil, err
	}
	return ipc.IPCEventHandle(e.h)
}

// OpenEvent is an event of another process, by its IPCHandle, as one of a device here: what either process records,
// both can wait for.
func OpenEvent(d *Device, handle []byte) (*Event, error) {
	ipc, err := optional[driver.IPCEvents](d.rt, "open event")
	if err != nil {
		return nil, err
	}
	h, err := ipc.IPCEventOpen(d.index, handle)
	if err != nil {
		return nil, err
	}
	e := &Event{Interprocess: true}
	e.become(d, h)
	return e, nil
}

// Device is the event's device, nil before the first record.
func (e *Event) Device() *Device {
	d, _ := e.handle()
	return d
}

// Handle is the driver's, 0 before the first record.
func (e *Event) Handle() EventHandle {
	_, h := e.handle()
	return h
}

// Query reports whether the work that the event stands for is done, which no work is.
func (e *Event) Query() (bool, error) {
	d, h := e.handle()
	if h == 0 {
		return true, nil
	}
	return d.rt.drv.EventQuery(h)
}

// Synchronize waits for the work that the event stands for, and returns what it failed with.
func (e *Event) Synchronize(ctx context.Context) error {
	d, h := e.handle()
	if h == 0 {
		return nil
	}
	return d.rt.drv.EventSynchronize(ctx, h)
}

// Elapsed is the time from e to end, which both must have happened.
func (e *Event) Elapsed(end *Event) (time.Duration, error) {
	if !e.timing() || !end.timing() {
		return 0, Errorf(ErrInvalidArgument, "", "elapsed time",
			"Both events must be created with argument 'enable_timing=True'.")
	}
	d, from := e.handle()
	o, to := end.handle()
	if from == 0 || to == 0 {
		return 0, Errorf(ErrInvalidArgument, "", "elapsed time",
			"Both events must be recorded before calculating elapsed time.")
	}
	if d != o {
		return 0, Errorf(ErrWrongDevice, d.Name(), "elapsed time", "the other event is of %s", o.Name())
	}
	return d.rt.drv.EventElapsed(from, to)
}

func (e *Event) timing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Timing && (e.h == 0 || e.timed)
}

// Close destroys the event; waits for it end as they would have. It may then be used again like a new one.
func (e *Event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.h == 0 {
		return nil
	}
	e.cleanup.Stop()
	err := e.dev.rt.drv.EventDestroy(e.h)
	e.dev, e.h = nil, 0
	return err
}
