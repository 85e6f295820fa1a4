package device

import (
	"errors"
	"sync"
)

// Graph is captured work, ready to be replayed. Close it when done.
type Graph struct {
	drv  Graphs
	rt   *Runtime
	mu   sync.Mutex
	g    GraphHandle
	x    ExecHandle
	done bool
}

// Capture runs f while the work that it enqueues on s, and on streams that come to wait for s, becomes a graph instead of
// running. If f fails, or does what a capture forbids ([Graphs]), there is no graph.
func Capture(s *Stream, f func() error) (*Graph, error) {
	drv, err := optional[Graphs](s.dev.rt, "capture")
	if err != nil {
		return nil, err
	}
	g, err := capture(drv, s, f)
	if err != nil {
		return nil, err
	}
	x, err := drv.Instantiate(g)
	if err != nil {
		return nil, errors.Join(err, drv.GraphDestroy(g))
	}
	return &Graph{drv: drv, rt: s.dev.rt, g: g, x: x}, nil
}

// capture returns what f enqueued as a graph of the driver's.
func capture(drv Graphs, s *Stream, f func() error) (g GraphHandle, err error) {
	if err := drv.CaptureBegin(s.h); err != nil {
		return 0, err
	}
	ended := false
	defer func() {
		if !ended { // f has panicked: the stream must not stay as it is
			if g, err := drv.CaptureEnd(s.h); err == nil {
				_ = drv.GraphDestroy(g)
			}
		}
	}()
	ferr := f()
	ended = true
	g, err = drv.CaptureEnd(s.h)
	if ferr != nil {
		if err == nil {
			err = drv.GraphDestroy(g)
		}
		return 0, errors.Join(ferr, err)
	}
	return g, err
}

// Capturing reports whether work of the stream is being captured.
func (s *Stream) Capturing() bool {
	drv, ok := s.drv().(Graphs)
	if !ok {
		return false
	}
	st, err := drv.CaptureStatus(s.h)
	return err == nil && st != NotCapturing
}

// Replay enqueues a run of the graph on s. Memory and functions that the graph uses must still be there when it runs. If s
// is being captured, the graph's work becomes a part of that.
func (g *Graph) Replay(s *Stream) error {
	x, err := g.handle(s)
	if err != nil {
		return err
	}
	return g.drv.GraphLaunch(x, s.h)
}

func (g *Graph) handle(s *Stream) (ExecHandle, error) {
	if s.dev.rt != g.rt {
		return 0, Errorf(ErrWrongDevice, g.rt.Name(), "graph", "%v is of another type of device", s)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return 0, Errorf(ErrInvalidHandle, g.rt.Name(), "graph", "the graph is closed")
	}
	return g.x, nil
}

// Update captures f anew and gives the graph what has changed: pointers, sizes, functions. The work must be of the same
// kinds in the same order, else the graph stays as it was. Replays enqueued before are not affected.
func (g *Graph) Update(s *Stream, f func() error) error {
	x, err := g.handle(s)
	if err != nil {
		return err
	}
	next, err := capture(g.drv, s, f)
	if err != nil {
		return err
	}
	if err := g.drv.GraphUpdate(x, next); err != nil {
		return errors.Join(err, g.drv.GraphDestroy(next))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return g.drv.GraphDestroy(next)
	}
	old := g.g
	g.g = next
	return g.drv.GraphDestroy(old)
}

// Nodes describes the graph's work.
func (g *Graph) Nodes() ([]Node, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drv.GraphNodes(g.g)
}

// Close destroys the graph. Replays that are enqueued still run.
func (g *Graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return nil
	}
	g.done = true
	return errors.Join(g.drv.ExecDestroy(g.x), g.drv.GraphDestroy(g.g))
}
