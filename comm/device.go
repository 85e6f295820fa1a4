package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// streams is what the communicator of a device has besides: the streams that its operations are enqueued on, and their
// order.
type streams struct {
	hostExecutor // of operations on tensors of the host
	dev          *device.Device
	home         *device.Stream // memory of Empty is allocated for it, and nothing else is ever enqueued on it
	// library enqueues operations by itself; nil if engines of the process carry them out.
	library *libraryExecutor
	host    bool // the backend takes tensors of the host as well
	staged  bool // engines of the process carry operations out, and can't touch the memory

	in, out tensor.Header // what the call sees that has the lane, if it's done by its caller

	mu        sync.Mutex
	own       *device.Stream   // of asynchronous collectives
	order     chain            // of collectives
	posts     chain            // of sends and receives, up to where they are posted
	transfers []*device.Stream // of asynchronous sends and receives
	priority  device.Priority
}

// bind keeps the device current for the calling thread while an operation is handed to a backend's library, so that
// none of the calls of the device's has to make it so.
func (s *streams) bind() (unbind func(), err error) {
	if s.library == nil {
		return func() {}, nil
	}
	return s.dev.Bind()
}

// openDevice returns the device that a name says; without an index, the current one of its type.
func openDevice(ctx context.Context, spec string) (*device.Device, error) {
	name, index, err := device.Parse(spec)
	if err != nil {
		return nil, err
	}
	rt, err := device.Open(name)
	if err != nil {
		return nil, err
	}
	if index < 0 {
		return rt.CurrentOf(ctx)
	}
	return rt.Device(index)
}

// newStreams makes what the communicator of a device has besides, nil for the host's. A backend for the host does for
// every device, by its memory where engines of the process can touch that, else by copies.
func newStreams(d *device.Device, priority device.Priority, replays time.Duration, b backend.Backend) (s *streams,
	err error) {
	caps := b.Capabilities()
	if d == nil || d.Properties().HostAccess {
		return nil, nil
	}
	s = &streams{dev: d, priority: priority, host: caps.Serves(device.Host)}
	if enq, ok := b.(backend.Enqueuer); ok && caps.Serves(d.Name()) {
		s.library = &libraryExecutor{streams: s, enq: enq}
	}
	if s.library == nil && !s.host {
		return nil, fmt.Errorf("%w: backend %q has no device %q, only %v", ErrUnsupported, caps.Name, d.Name(), caps.Devices)
	}
	if s.own, err = takeStream(d, priority); err == nil {
		s.staged = s.library == nil && !s.own.HostKernels()
		s.home, err = takeStream(d, device.Normal)
	}
	if lib := s.library; lib != nil && err == nil && replays > 0 {
		lib.replays.pause = replays
		lib.replays.marks, err = marksOf(d, s.home)
	}
	return s, err
}

// Bind gives a communicator of the host a device, whose tensors it takes from then on, beside those of the host: as
// WithDevice does when it's made. Binding is this rank's alone: others may bind at other times, to other devices, or
// not at all. It may be called beside operations, which are in the order of their calls as before; to bind to the same
// device again changes nothing. A communicator that has another device, or a backend that doesn't serve this one,
// refuses. One without a world takes any device, which the backend of its world may refuse then.
func (c *Comm) Bind(d *device.Device) error {
	if d == nil || d.Properties().HostAccess {
		return c.invalid("bind", "to %v, which the communicator has anyway", d)
	}
	if c.gate.closed() {
		return &FinalizedError{Where: c.at("bind")}
	}
	if w, ok := c.b.(*worldless); ok && w.bind(d) {
		return nil
	} else if host := c.placement.Load(); !ok && host.dev == nil {
		s, err := newStreams(d, c.opened.priority, c.opened.replays, c.b)
		if err != nil {
			return c.deviceError("bind", err)
		}
		if !c.placement.CompareAndSwap(host, c.placementOn(s)) {
			s.close()
		}
	}
	if s := c.dev(); s == nil || s.dev != d {
		return c.invalid("bind", "to %s: the communicator is for %s", d.Name(), c.Device())
	}
	return nil
}

// takePriority takes the hint for streams of high priority, which has torchcomms' name, out of the hints of a
// communicator. given says whether it was there.
func takePriority(hints map[string]string) (p device.Priority, given bool, err error) {
	const name = "is_high_priority_stream"
	text, given := hints[name]
	if !given {
		return 0, false, nil
	}
	high, err := strconv.ParseBool(text)
	if err != nil {
		return 0, false, fmt.Errorf("%w: hint %s=%q is neither true nor false", ErrInvalidArgument, name, text)
	}
	if high {
		p = device.High
	}
	delete(hints, name)
	return p, true, nil
}

// idle are streams that communicators have had. A stream of the device's pool could deadlock: its work may wait for
// that of another communicator, which could be queued behind it on the same stream. And a stream can't be destroyed
// after use, since memory may still be recorded as used by it.
var idle struct {
	sync.Mutex
	streams map[*device.Device][]*device.Stream
}

func takeStream(d *device.Device, p device.Priority) (*device.Stream, error) {
	idle.Lock()
	list := idle.streams[d]
	for i, s := range list {
		if (s.Priority() > 0) == (p > 0 && d.Properties().PriorityLevels > 1) {
			idle.streams[d] = slices.Delete(list, i, i+1)
			idle.Unlock()
			return s, nil
		}
	}
	idle.Unlock()
	return d.NewStream(p)
}

// putStream keeps an idle stream for the next communicator that needs one.
func putStream(s *device.Stream) {
	if s == nil || s.Capturing() {
		return
	}
	if done, err := s.Query(); !done || err != nil {
		return
	}
	idle.Lock()
	defer idle.Unlock()
	if idle.streams == nil {
		idle.streams = map[*device.Device][]*device.Stream{}
	}
	d := s.Device()
	idle.streams[d] = append(idle.streams[d], s)
}

// close gives the streams back. The communicator's operations are done.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range append(s.transfers, s.own, s.home, s.order.captured, s.posts.captured) {
		putStream(x)
	}
	s.transfers = nil
	_ = errors.Join(s.order.event.Close(), s.posts.event.Close()) // for which no call waits any more
}

// awaitEvent waits for an event; a context that wants to be asked meanwhile is.
func awaitEvent(ctx context.Context, e *device.Event) error {
	p := fabric.PollerOf(ctx)
	if p == nil {
		return e.Synchronize(ctx)
	}
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, fabric.PollInterval) {
		if done, err := e.Query(); done || err != nil {
			return err
		}
		if err := errors.Join(p.Poll(), ctx.Err()); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// Stream is the stream that the asynchronous collectives of a device's communicator run on; nil if it's the host's.
func (c *Comm) Stream() *device.Stream {
	if c.dev() == nil {
		return nil
	}
	return c.dev().own
}

// Traffic counts how the data of this rank's collectives and operations on windows moved so far: in place in the ranks'
// own memory, or through other. It's zero for backends that don't say.
func (c *Comm) Traffic() Traffic {
	if b, ok := c.b.(backend.TrafficCounter); ok {
		return b.Traffic()
	}
	return Traffic{}
}

// deviceError gives an error of a device its kind here. An error with which work on a stream has failed stays as it is:
// it has a kind already, or is the program's own.
func (c *Comm) deviceError(op string, err error) error {
	at := c.at(op)
	switch {
	case err == nil || errors.Is(err, device.ErrFailed) || errors.As(err, new(interface{ At() Where })):
		return err
	case errors.Is(err, device.ErrInvalidArgument):
		return &InvalidArgumentError{Where: at, Detail: err.Error(), Err: err}
	case errors.Is(err, device.ErrUnsupported) || errors.Is(err, ErrUnsupported):
		return &UnsupportedError{Where: at, Detail: err.Error()}
	case errors.Is(err, device.ErrTimeout):
		return &TimeoutError{Where: at}
	case errors.Is(err, device.ErrCanceled):
		return &CanceledError{Where: at, Err: err}
	case c.placement.Load().library() != nil && !errors.As(err, new(*device.Error)):
		return err // of a hook
	}
	return &InternalError{Where: at, Err: err}
}
