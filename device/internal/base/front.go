package base

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// Front is the part of a driver that finds and locks what handles stand for. A driver that embeds it has the methods of
// [driver.Driver] and [driver.Graphs] below, and of [driver.Tracer] those for streams.
type Front[S streamOf[S, E, X, G], E eventOf[S, E], X execOf[X, G], G graphOf[X, G]] struct {
	Streams *Handles[driver.StreamHandle, S]
	Events  *Handles[driver.EventHandle, E]
	Graphs  *Handles[driver.GraphHandle, G]
	Execs   *Handles[driver.ExecHandle, X]
}

// Set makes all of them, before the first use.
func (f *Front[S, E, X, G]) Set(n *Numbers) {
	f.Streams = NewHandles[driver.StreamHandle, S](n, "stream")
	f.Events = NewHandles[driver.EventHandle, E](n, "event")
	f.Graphs = NewHandles[driver.GraphHandle, G](n, "graph")
	f.Execs = NewHandles[driver.ExecHandle, X](n, "instantiated graph")
}

// streamOf has what a driver does with a stream, which is locked. op names the call.
type streamOf[S, E, X, G any] interface {
	entered[driver.StreamHandle, S]
	living
	Base() *Stream
	Device() *Device
	Query(op string) (bool, error)
	WaitFor(op string, e E) error
	HostFunc(op, name string, f func() error) error
	Fill(op string, dst driver.Ptr, value byte, bytes int) error
	CaptureStatus() driver.CaptureStatus
	EndCapture(op string) (G, error) // unlocks the stream
	LaunchGraph(op string, x X) error
}

// eventOf has what a driver does with an event, which is locked.
type eventOf[S, E any] interface {
	entered[driver.EventHandle, E]
	living
	Device() *Device
	Record(op string, s S) error // which is locked as well
	Query(op string) (bool, error)
	Synchronize(ctx context.Context, op string) error // unlocks the event
	Times() (timing, recorded bool)
	Moment(op string, h driver.EventHandle) (E, error) // what Elapsed takes, of the last record: the event, or a copy
	Elapsed(op string, end E) (time.Duration, error)   // between moments, which aren't locked
	Destroy(op string) error
}

type graphOf[X, G any] interface {
	entered[driver.GraphHandle, G]
	Nodes(op string) ([]driver.Node, error)
	Instantiate(op string) (X, error)
	Destroy(op string) error
}

// execOf has what a driver does with an instantiated graph, which is locked. The lock ends before
// after is called, since that may lock streams, which a launch locks before the graph; nil: nothing is left to do.
type execOf[X, G any] interface {
	entered[driver.ExecHandle, X]
	living
	Update(op string, g G) (after func(), err error)
	Destroy(op string) (after func(), err error)
}

// StreamQuery is [driver.Streams].StreamQuery.
func (f *Front[S, E, X, G]) StreamQuery(h driver.StreamHandle) (bool, error) {
	const op = "query stream"
	s, err := Enter(f.Streams, op, h)
	if err != nil {
		return false, err
	}
	defer s.Unlock()
	return s.Query(op)
}

// StreamWaitEvent is [driver.Streams].StreamWaitEvent.
func (f *Front[S, E, X, G]) StreamWaitEvent(h driver.StreamHandle, eh driver.EventHandle) error {
	const op = "wait for event"
	s, e, err := EnterBoth(f.Streams, f.Events, op, h, eh)
	if err != nil {
		return err
	}
	defer s.Unlock()
	defer e.Unlock()
	return s.WaitFor(op, e)
}

// HostFunc is [driver.Streams].HostFunc. The function runs on a goroutine, and may call the driver.
func (f *Front[S, E, X, G]) HostFunc(h driver.StreamHandle, name string, run func() error) error {
	const op = "host function"
	s, err := Enter(f.Streams, op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	if run == nil {
		return driver.Errorf(driver.ErrInvalidArgument, s.Device().Name, op, "%s: no function", name)
	}
	return s.HostFunc(op, name, run)
}

// Fill is [driver.Memory].Fill.
func (f *Front[S, E, X, G]) Fill(h driver.StreamHandle, dst driver.Ptr, value byte, bytes int) error {
	const op = "fill"
	s, err := Enter(f.Streams, op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	if err := s.Device().CheckSize(op, bytes); err != nil {
		return err
	}
	return s.Fill(op, dst, value, bytes)
}

// EventRecord is [driver.Events].EventRecord.
func (f *Front[S, E, X, G]) EventRecord(h driver.EventHandle, sh driver.StreamHandle) error {
	const op = "record event"
	s, e, err := EnterBoth(f.Streams, f.Events, op, sh, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	defer e.Unlock()
	if b := e.Device(); b != s.Device() {
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "stream %#x is of %s", uintptr(sh), s.Device().Name)
	}
	return e.Record(op, s)
}

// EventQuery is [driver.Events].EventQuery.
func (f *Front[S, E, X, G]) EventQuery(h driver.EventHandle) (bool, error) {
	const op = "query event"
	e, err := Enter(f.Events, op, h)
	if err != nil {
		return false, err
	}
	defer e.Unlock()
	return e.Query(op)
}

// EventSynchronize is [driver.Events].EventSynchronize. A later record is another matter.
func (f *Front[S, E, X, G]) EventSynchronize(ctx context.Context, h driver.EventHandle) error {
	const op = "synchronize event"
	e, err := Enter(f.Events, op, h)
	if err != nil {
		return err
	}
	return e.Synchronize(ctx, op)
}

// EventElapsed is [driver.Events].EventElapsed.
func (f *Front[S, E, X, G]) EventElapsed(start, end driver.EventHandle) (time.Duration, error) {
	const op = "elapsed time"
	var at [2]E
	for i, h := range [...]driver.EventHandle{start, end} {
		e, err := Enter(f.Events, op, h)
		if err != nil {
			return 0, err
		}
		timing, recorded := e.Times()
		switch b := e.Device(); {
		case i > 0 && at[0].Device() != b:
			err = driver.Errorf(driver.ErrWrongDevice, at[0].Device().Name, op, "the other event is of %s", b.Name)
		case !timing:
			err = driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "event %#x keeps no time", uintptr(h))
		case !recorded:
			err = driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "event %#x was never recorded", uintptr(h))
		default:
			at[i], err = e.Moment(op, h)
		}
		e.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return at[0].Elapsed(op, at[1])
}

// EventDestroy is [driver.Events].EventDestroy.
func (f *Front[S, E, X, G]) EventDestroy(h driver.EventHandle) error {
	const op = "destroy event"
	e, err := Enter(f.Events, op, h)
	if err != nil {
		return err
	}
	defer e.Unlock()
	e.end()
	f.Events.Drop(h, e)
	return e.Destroy(op)
}

// CaptureStatus is [driver.Graphs].CaptureStatus.
func (f *Front[S, E, X, G]) CaptureStatus(h driver.StreamHandle) (driver.CaptureStatus, error) {
	s, err := Enter(f.Streams, "capture status", h)
	if err != nil {
		return 0, err
	}
	defer s.Unlock()
	return s.CaptureStatus(), nil
}

// CaptureEnd is [driver.Graphs].CaptureEnd.
func (f *Front[S, E, X, G]) CaptureEnd(h driver.StreamHandle) (driver.GraphHandle, error) {
	const op = "end capture"
	s, err := Enter(f.Streams, op, h)
	if err != nil {
		return 0, err
	}
	g, err := s.EndCapture(op)
	if err != nil {
		return 0, err
	}
	return f.Graphs.Add(g), nil
}

// GraphNodes is [driver.Graphs].GraphNodes.
func (f *Front[S, E, X, G]) GraphNodes(h driver.GraphHandle) ([]driver.Node, error) {
	const op = "nodes of graph"
	g, err := f.Graphs.Find(op, h)
	if err != nil {
		return nil, err
	}
	return g.Nodes(op)
}

// GraphDestroy is [driver.Graphs].GraphDestroy.
func (f *Front[S, E, X, G]) GraphDestroy(h driver.GraphHandle) error {
	const op = "destroy graph"
	g, err := f.Graphs.Take(op, h)
	if err != nil {
		return err
	}
	return g.Destroy(op)
}

// Instantiate is [driver.Graphs].Instantiate.
func (f *Front[S, E, X, G]) Instantiate(h driver.GraphHandle) (driver.ExecHandle, error) {
	const op = "instantiate graph"
	g, err := f.Graphs.Find(op, h)
	if err != nil {
		return 0, err
	}
	x, err := g.Instantiate(op)
	if err != nil {
		return 0, err
	}
	return f.Execs.Add(x), nil
}

// GraphLaunch is [driver.Graphs].GraphLaunch.
func (f *Front[S, E, X, G]) GraphLaunch(xh driver.ExecHandle, h driver.StreamHandle) error {
	const op = "launch graph"
	s, x, err := EnterBoth(f.Streams, f.Execs, op, h, xh)
	if err != nil {
		return err
	}
	defer s.Unlock()
	defer x.Unlock()
	return s.LaunchGraph(op, x)
}

// GraphUpdate is [driver.Graphs].GraphUpdate.
func (f *Front[S, E, X, G]) GraphUpdate(xh driver.ExecHandle, h driver.GraphHandle) error {
	const op = "update graph"
	g, err := f.Graphs.Find(op, h)
	if err != nil {
		return err
	}
	x, err := Enter(f.Execs, op, xh)
	if err != nil {
		return err
	}
	after, err := x.Update(op, g)
	x.Unlock()
	if after != nil {
		after()
	}
	return err
}

// ExecDestroy is [driver.Graphs].ExecDestroy.
func (f *Front[S, E, X, G]) ExecDestroy(h driver.ExecHandle) error {
	const op = "destroy instantiated graph"
	x, err := Enter(f.Execs, op, h)
	if err != nil {
		return err
	}
	x.end()
	f.Execs.Drop(h, x)
	after, err := x.Destroy(op)
	x.Unlock()
	if after != nil {
		after()
	}
	return err
}

// TracePush is [driver.Tracer].TracePush.
func (f *Front[S, E, X, G]) TracePush(h driver.StreamHandle, external uint64) error {
	s, err := Enter(f.Streams, "push external ID", h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	s.Base().external.Push(external)
	return nil
}

// TracePop is [driver.Tracer].TracePop.
func (f *Front[S, E, X, G]) TracePop(h driver.StreamHandle) (uint64, error) {
	s, err := Enter(f.Streams, "pop external ID", h)
	if err != nil {
		return 0, err
	}
	defer s.Unlock()
	return s.Base().external.Pop(s.Device().Name, h)
}
