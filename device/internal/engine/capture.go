package engine

import (
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// capture collects the work of streams as nodes. All of it is guarded by the engine's capmu.
type capture struct {
	origin  *stream
	streams []*stream // the origin and those that joined
	nodes   []node
	bad     string // why it will fail; empty while it is sound
	over    bool
}

// node is work of a graph, to run on the device of the stream that captured it. It comes after its deps, which have
// lower numbers.
type node struct {
	work  work
	dev   *dev
	level int
	deps  []int
}

// CaptureBegin is [driver.Graphs].CaptureBegin.
func (e *Engine) CaptureBegin(h driver.StreamHandle) error {
	s, err := e.streams.Find("begin capture", h)
	if err != nil {
		return err
	}
	e.capmu.Lock()
	defer e.capmu.Unlock()
	if s.capture.Load() != nil {
		return driver.Errorf(driver.ErrCapture, s.dev.name, "begin capture", "stream %#x is being captured already",
			uintptr(h))
	}
	c := &capture{origin: s, streams: []*stream{s}}
	s.tailOf = nil
	s.capture.Store(c)
	return nil
}

// CaptureStatus is [driver.Graphs].CaptureStatus.
func (e *Engine) CaptureStatus(h driver.StreamHandle) (driver.CaptureStatus, error) {
	s, err := e.streams.Find("capture status", h)
	if err != nil {
		return 0, err
	}
	e.capmu.Lock()
	defer e.capmu.Unlock()
	switch c := s.capture.Load(); {
	case c == nil:
		return driver.NotCapturing, nil
	case c.bad != "":
		return driver.CaptureInvalidated, nil
	}
	return driver.Capturing, nil
}

// CaptureEnd is [driver.Graphs].CaptureEnd.
func (e *Engine) CaptureEnd(h driver.StreamHandle) (driver.GraphHandle, error) {
	s, err := e.streams.Find("end capture", h)
	if err != nil {
		return 0, err
	}
	e.capmu.Lock()
	defer e.capmu.Unlock()
	c := s.capture.Load()
	if c == nil {
		return 0, driver.Errorf(driver.ErrCapture, s.dev.name, "end capture", "stream %#x is not being captured", uintptr(h))
	}
	if c.origin != s {
		c.spoil("its end was called for on stream %#x, which only joined it", uintptr(h))
		return 0, driver.Errorf(driver.ErrCapture, s.dev.name, "end capture",
			"the capture began on stream %#x and must end there", uintptr(c.origin.handle))
	}
	joined := c.ancestors(s.tailOf)
	for _, o := range c.streams {
		for _, n := range o.tailOf {
			if !joined[n] {
				c.spoil("%q on stream %#x was not joined: before the end, let the captured stream wait for an event behind it, "+
					"or for the Work of an asynchronous operation, by its Wait", &c.nodes[n].work, uintptr(o.handle))
			}
		}
	}
	c.over = true
	for _, o := range c.streams {
		o.capture.Store(nil)
		o.tailOf = nil
	}
	if c.bad != "" {
		return 0, driver.Errorf(driver.ErrCapture, s.dev.name, "end capture", "the capture is invalid: %s", c.bad)
	}
	return e.graphs.Add(&graph{nodes: c.nodes}), nil
}

// spoil makes the capture invalid, unless it is so already.
func (c *capture) spoil(format string, args ...any) {
	if c.bad == "" {
		c.bad = driver.Errorf("", "", "", format, args...).Detail
	}
}

func (c *capture) invalidate(e *Engine, why string) {
	e.capmu.Lock()
	defer e.capmu.Unlock()
	c.spoil("%s", why)
}

// ancestors returns which nodes are among or before the given ones.
func (c *capture) ancestors(of []int) []bool {
	seen := make([]bool, len(c.nodes))
	for _, n := range of {
		seen[n] = true
	}
	for n := len(c.nodes) - 1; n >= 0; n-- { // deps have lower numbers, so one pass downwards suffices
		if seen[n] {
			for _, d := range c.nodes[n].deps {
				seen[d] = true
			}
		}
	}
	return seen
}

// refuseCaptured reports, and holds against it, a capture that what the host wants to do doesn't go with.
func (s *stream) refuseCaptured(what string) error {
	c := s.capture.Load()
	if c == nil {
		return nil
	}
	c.invalidate(s.e, "the host wanted to "+what)
	return driver.Errorf(driver.ErrCapture, s.dev.name, "", "can't %s: stream %#x is being captured", what,
		uintptr(s.handle))
}

// captureWork adds work to the stream's capture, if it has one.
func (s *stream) captureWork(w *work) (captured bool, err error) {
	if s.capture.Load() == nil {
		return false, nil
	}
	s.e.capmu.Lock()
	defer s.e.capmu.Unlock()
	c := s.capture.Load()
	if c == nil {
		return false, nil
	}
	if err := c.check(s); err != nil {
		return true, err
	}
	c.add(s, *w)
	return true, nil
}

func (c *capture) check(s *stream) error {
	if c.bad != "" {
		return driver.Errorf(driver.ErrCapture, s.dev.name, "", "the capture of stream %#x is invalid: %s", uintptr(s.handle),
			c.bad)
	}
	return nil
}

func (c *capture) add(s *stream, w work) {
	w.operands = slices.Clone(w.operands)
	c.nodes = append(c.nodes, node{w, s.dev, s.level, s.tailOf})
	s.tailOf = []int{len(c.nodes) - 1}
}

// captureGraph adds the nodes of a graph to the stream's capture, if it has one.
func (s *stream) captureGraph(nodes []node) (captured bool, err error) {
	s.e.capmu.Lock()
	defer s.e.capmu.Unlock()
	c := s.capture.Load()
	if c == nil {
		return false, nil
	}
	if err := c.check(s); err != nil {
		return true, err
	}
	first, leaf := len(c.nodes), make([]bool, len(nodes))
	for i, n := range nodes {
		deps := s.tailOf
		if len(n.deps) > 0 {
			deps = make([]int, len(n.deps))
			for j, d := range n.deps {
				deps[j] = first + d
				leaf[d] = false
			}
		}
		leaf[i] = true
		n.deps = deps
		c.nodes = append(c.nodes, n)
	}
	if len(nodes) > 0 {
		s.tailOf = nil
		for i, is := range leaf {
			if is {
				s.tailOf = append(s.tailOf, first+i)
			}
		}
	}
	return true, nil
}

// captureRecord lets a point stand for what the stream has captured, if it is being captured.
func (s *stream) captureRecord(p *point) bool {
	if s.capture.Load() == nil {
		return false
	}
	s.e.capmu.Lock()
	defer s.e.capmu.Unlock()
	c := s.capture.Load()
	if c == nil {
		return false
	}
	p.capture, p.nodes = c, s.tailOf
	return true
}

// captureWait lets what the stream captures come after a point, and lets it join the point's capture.
func (s *stream) captureWait(p *point) (captured bool, err error) {
	if s.capture.Load() == nil && (p == nil || p.capture == nil) {
		return false, nil
	}
	s.e.capmu.Lock()
	defer s.e.capmu.Unlock()
	c := s.capture.Load()
	refuse := func(format string, args ...any) (bool, error) {
		err := driver.Errorf(driver.ErrCapture, s.dev.name, "wait for event", format, args...)
		if c != nil {
			c.spoil("%s", err.Detail)
		}
		return true, err
	}
	switch {
	case p == nil:
		return c != nil, nil
	case p.capture == nil && c == nil:
		return false, nil
	case p.capture == nil:
		return refuse("the event was recorded outside of the capture of stream %#x", uintptr(s.handle))
	case p.capture.over:
		return refuse("the event was recorded in a capture that has ended")
	case c != nil && c != p.capture:
		p.capture.spoil("another capture waited for an event of this one")
		return refuse("the event was recorded in another capture")
	}
	if err := p.capture.check(s); err != nil {
		return true, err
	}
	if c == nil {
		c = p.capture
		c.streams = append(c.streams, s)
		s.tailOf = nil
		s.capture.Store(c)
	}
	tail := append(slices.Clone(s.tailOf), p.nodes...)
	slices.Sort(tail)
	s.tailOf = slices.Compact(tail)
	return true, nil
}
