package device

import (
	"errors"
	"sync"

	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/rng"
)

// Graph is captured work, ready to be replayed. Close it when done.
//
// Memory from [Device.Alloc] for captured streams is the graph's own until it's closed, also what is deallocated
// before: replays use it again.
//
// Kernels that take their random numbers by [rng.CUDA.Reserve] from a device's default generator, which must have been
// used or seeded before the capture, draw new ones at each replay. So do those that take them from a generator that
// [Drawing] names. Kernels of the device read where they begin from [Device.RandomState].
type Graph struct {
	drv  Graphs
	rt   *Runtime
	pool cache.PoolID
	from []*rng.CUDA // generators beside the devices' own

	mu     sync.Mutex
	g      driver.GraphHandle
	x      driver.ExecHandle
	caches []*cache.Cache // whose pool the graph uses, once for each capture
	done   bool
	draws  draws
}

// CaptureOption says how a capture is made.
type CaptureOption func(*Graph)

// InPool lets a graph share the memory pool of others ([Graph.Pool]): what was deallocated in the capture of one is
// given to the next. Such graphs must be replayed in the order of their captures, and not beside each other.
func InPool(id cache.PoolID) CaptureOption { return func(g *Graph) { g.pool = id } }

// Drawing lets a graph draw from generators other than the devices' default ones. Each replay moves them on. They are
// of the captured stream's device.
func Drawing(generators ...*rng.CUDA) CaptureOption {
	return func(g *Graph) { g.from = append(g.from, generators...) }
}

// Pool names the graph's memory pool, for [InPool].
func (g *Graph) Pool() cache.PoolID { return g.pool }

// Capture runs f while the work that it enqueues on s, and on streams that come to wait for s, becomes a graph instead
// of running. If f fails, or does what a capture forbids ([Graphs]), there is no graph.
func Capture(s *Stream, f func() error, opts ...CaptureOption) (*Graph, error) {
	drv, err := optional[Graphs](s.dev.rt, "capture")
	if err != nil {
		return nil, err
	}
	g := &Graph{drv: drv, rt: s.dev.rt, pool: cache.NewPoolID()}
	for _, o := range opts {
		o(g)
	}
	if g.g, g.draws.captures, err = g.capture(s, f); err != nil {
		return nil, errors.Join(err, g.releasePools())
	}
	if g.x, err = drv.Instantiate(g.g); err != nil {
		return nil, errors.Join(err, drv.GraphDestroy(g.g), closeAll(g.draws.captures), g.releasePools())
	}
	return g, nil
}

// capture returns what f enqueues as a graph of the driver's, with memory of the graph's own.
func (g *Graph) capture(s *Stream, f func() error) (h driver.GraphHandle, all []*drawn, err error) {
	if _, err := s.dev.Allocator(); err != nil {
		return 0, nil, err
	}
	captured := func(h cache.Stream) bool {
		st, err := g.drv.CaptureStatus(StreamHandle(h))
		return err == nil && st != NotCapturing
	}
	for _, d := range g.rt.devices {
		c := d.cache.Load()
		if c == nil {
			continue
		}
		if err := c.BeginPool(g.pool, captured, true); err != nil {
			return 0, nil, d.cacheError("capture", err)
		}
		g.mu.Lock()
		g.caches = append(g.caches, c)
		g.mu.Unlock()
		defer c.EndPool(g.pool)
	}
	end, err := g.rt.capturing(s, g.from)
	if err != nil {
		return 0, nil, err
	}
	defer func() { // also if f panics
		var eerr error
		all, eerr = end()
		if err = errors.Join(err, eerr); err != nil {
			err = errors.Join(err, closeAll(all))
		}
	}()
	h, err = capture(g.drv, s, f)
	return h, nil, err
}

// releasePools lets the graph's memory go.
func (g *Graph) releasePools() (err error) {
	for _, c := range g.caches {
		err = errors.Join(err, c.ReleasePool(g.pool))
	}
	g.caches = nil
	return err
}

// capture returns what f enqueued as a graph of the driver's.
func capture(drv Graphs, s *Stream, f func() error) (g driver.GraphHandle, err error) {
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

// Capturing reports whether [Capture] is under way with memory of the device, which is the graph's own then.
func (d *Device) Capturing() bool {
	c := d.cache.Load()
	return c != nil && c.Capturing()
}

// Replay enqueues a run of the graph on s. Memory and functions that the graph uses must still be there when it runs.
// If s is being captured, the graph's work becomes a part of that; on GPUs it's ErrUnsupported.
func (g *Graph) Replay(s *Stream) error {
	if _, err := g.handle(s); err != nil {
		return err
	}
	g.mu.Lock() // replays come in the order of their numbers
	defer g.mu.Unlock()
	if err := g.draws.before(s); err != nil {
		return err
	}
	return errors.Join(g.drv.GraphLaunch(g.x, s.h), g.draws.after(s))
}

func (g *Graph) handle(s *Stream) (driver.ExecHandle, error) {
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
	next, all, err := g.capture(s, f)
	if err != nil {
		return err
	}
	if err := g.drv.GraphUpdate(x, next); err != nil {
		return errors.Join(err, g.drv.GraphDestroy(next), closeAll(all))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return errors.Join(g.drv.GraphDestroy(next), closeAll(all))
	}
	old, before := g.g, g.draws.captures
	g.g, g.draws.captures = next, all
	return errors.Join(g.drv.GraphDestroy(old), closeAll(before))
}

// Nodes describes the graph's work.
func (g *Graph) Nodes() ([]Node, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return nil, Errorf(ErrInvalidHandle, g.rt.Name(), "graph", "the graph is closed")
	}
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
	return errors.Join(g.drv.ExecDestroy(g.x), g.drv.GraphDestroy(g.g), closeAll(g.draws.captures),
		g.releasePools(), g.draws.last.Close())
}
