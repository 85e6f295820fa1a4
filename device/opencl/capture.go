package opencl

import (
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// work is what can be enqueued on a stream, and captured.
type work struct {
	kind    driver.ActivityKind
	name    string
	uses    []side
	launch  *launch               // of a kernel, if it's one
	run     func(s *stream) error // enqueues it; the stream is locked
	crosses bool                  // something on another lane comes after it
}

// capture collects the work of streams as nodes. OpenCL has no captures: the driver records them. All of it is guarded
// by Driver.capturing.
type capture struct {
	lanes []*lane // the streams in it; it begins and ends on the first one's
	nodes []node
	bad   string // why it will fail; empty while it is sound
	over  bool
}

// lane is a stream in a capture.
type lane struct {
	capture *capture
	s       *stream
	index   int
	tail    []int // the nodes that the next one comes after
}

// node is work of a graph, which runs on a queue for its lane. It comes after its deps, which have lower numbers.
type node struct {
	work
	lane int
	deps []int
}

func (s *stream) captured() bool { return s.lane.Load() != nil }

// submit enqueues work, or adds it to the stream's capture. The stream is locked.
func (s *stream) submit(op string, w work) error {
	if s.lane.Load() == nil {
		return w.run(s)
	}
	d := s.b.d
	d.capturing.Lock()
	defer d.capturing.Unlock()
	l := s.lane.Load()
	if l == nil {
		return w.run(s)
	}
	if err := l.capture.check(op, s); err != nil {
		return err
	}
	l.add(w)
	return nil
}

func (l *lane) add(w work) {
	c := l.capture
	if w.launch != nil {
		w.launch.k.m.Hold()
	}
	c.nodes = append(c.nodes, node{w, l.index, l.tail})
	l.tail = []int{len(c.nodes) - 1}
}

func (c *capture) check(op string, s *stream) error {
	if c.bad != "" {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "the capture of stream %#x is invalid: %s", uintptr(s.h), c.bad)
	}
	return nil
}

// spoil makes the capture invalid, unless it is so already.
func (c *capture) spoil(why string) {
	if c.bad == "" && !c.over {
		c.bad = why
	}
}

// unlessCaptured refuses what asks about the work of a stream, and invalidates its capture. The stream is locked.
func (s *stream) unlessCaptured(op string) error {
	if s.lane.Load() == nil {
		return nil
	}
	s.b.d.capturing.Lock()
	defer s.b.d.capturing.Unlock()
	l := s.lane.Load()
	if l == nil {
		return nil
	}
	l.capture.spoil("the host asked for its work")
	return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured", uintptr(s.h))
}

// captureRecord lets an event stand for what the stream has captured, if it is captured. Both are locked.
func (s *stream) captureRecord(op string, e *event) (captured bool, err error) {
	if s.lane.Load() == nil {
		return false, nil
	}
	s.b.d.capturing.Lock()
	defer s.b.d.capturing.Unlock()
	l := s.lane.Load()
	if l == nil {
		return false, nil
	}
	if err := l.capture.check(op, s); err != nil {
		return true, err
	}
	e.recorded, e.ticket, e.outcome, e.capture, e.nodes = true, nil, nil, l.capture, l.tail
	return true, nil
}

// meets lets what the stream captures come after an event, and lets it join the event's capture. Both are locked.
func (s *stream) meets(op string, e *event) (captured bool, err error) {
	if s.lane.Load() == nil && e.capture == nil {
		return false, nil
	}
	s.b.d.capturing.Lock()
	defer s.b.d.capturing.Unlock()
	l, c := s.lane.Load(), e.capture
	refuse := func(why string) (bool, error) {
		if l != nil {
			l.capture.spoil(why)
		}
		if c != nil {
			c.spoil(why)
		}
		return true, driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x: %s", uintptr(s.h), why)
	}
	switch {
	case !e.recorded:
		return l != nil, nil
	case c == nil && l == nil:
		return false, nil
	case c == nil:
		return refuse("the event was recorded outside of the capture")
	case c.over:
		return refuse("the event was recorded in a capture that has ended")
	case l != nil && l.capture != c:
		return refuse("the event was recorded in another capture")
	}
	if err := c.check(op, s); err != nil {
		return true, err
	}
	if l == nil {
		l = &lane{capture: c, s: s, index: len(c.lanes)}
		c.lanes = append(c.lanes, l)
		s.lane.Store(l)
	}
	tail := append(slices.Clone(l.tail), e.nodes...)
	slices.Sort(tail)
	l.tail = slices.Compact(tail)
	return true, nil
}

// CaptureBegin is [driver.Graphs].CaptureBegin.
func (d *Driver) CaptureBegin(h driver.StreamHandle) error {
	const op = "begin capture"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	d.capturing.Lock()
	defer d.capturing.Unlock()
	if s.captured() {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured already", uintptr(h))
	}
	c := &capture{}
	c.lanes = []*lane{{capture: c, s: s}}
	s.lane.Store(c.lanes[0])
	return nil
}

// CaptureStatus is that of [base.Front].
func (s *stream) CaptureStatus() driver.CaptureStatus {
	s.b.d.capturing.Lock()
	defer s.b.d.capturing.Unlock()
	switch l := s.lane.Load(); {
	case l == nil:
		return driver.NotCapturing
	case l.capture.bad != "":
		return driver.CaptureInvalidated
	}
	return driver.Capturing
}

// EndCapture is that of [base.Front].
func (s *stream) EndCapture(op string) (*graph, error) {
	defer s.Unlock()
	d := s.b.d
	d.capturing.Lock()
	defer d.capturing.Unlock()
	l := s.lane.Load()
	if l == nil {
		return nil, driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is not captured", uintptr(s.h))
	}
	c := l.capture
	if l.index != 0 {
		c.spoil("its end was called for on a stream that only joined it")
		return nil, driver.Errorf(driver.ErrCapture, s.b.Name, op, "the capture began on stream %#x, and must end there",
			uintptr(c.lanes[0].s.h))
	}
	joined := c.ancestors(l.tail)
	for _, o := range c.lanes {
		for _, n := range o.tail {
			if !joined[n] {
				c.spoil("stream " + hex(o.s.h) + " was not joined: before the end, let the captured stream wait for an event behind " +
					c.nodes[n].name + ", or for the Work of an asynchronous operation, by its Wait")
			}
		}
	}
	c.over = true
	for _, o := range c.lanes {
		o.s.lane.Store(nil)
	}
	g := &graph{nodes: c.nodes}
	for _, o := range c.lanes {
		g.lanes = append(g.lanes, o.s.b)
	}
	if c.bad != "" {
		g.drop()
		return nil, driver.Errorf(driver.ErrCapture, s.b.Name, op, "the capture is invalid: %s", c.bad)
	}
	for i := range g.nodes {
		for _, dep := range g.nodes[i].deps {
			if g.nodes[dep].lane != g.nodes[i].lane {
				g.nodes[dep].crosses = true
			}
		}
	}
	return g, nil
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
