package gpu

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// capture is what streams that are captured together have in common.
type capture struct {
	origin        *stream
	invalid, over atomic.Bool

	mu        sync.Mutex
	streams   []*stream
	memory    []use
	functions []captured
	modules   []*module
	scratch   map[*stream]*scratch
}

// scratch is memory of a graph that its nodes of one stream use, one after the other.
type scratch struct {
	workspaces
	uses atomic.Int32 // the capture or its graph, and instantiated graphs
}

// workspaces are those of a stream's part of the capture. The stream is locked.
func (c *capture) workspaces(s *stream) *workspaces {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.scratch[s]
	if x == nil {
		if c.scratch == nil {
			c.scratch = map[*stream]*scratch{}
		}
		x = &scratch{}
		x.uses.Store(1)
		c.scratch[s] = x
	}
	return &x.workspaces
}

// holdScratch counts one more that uses memory.
func holdScratch(list []*scratch) []*scratch {
	for _, x := range list {
		x.uses.Add(1)
	}
	return list
}

// dropScratch counts one use less, and frees unused memory when no run of it is under way.
func (d *Driver) dropScratch(b *gpu, list []*scratch) {
	for _, x := range list {
		if x.uses.Add(-1) == 0 {
			d.deferred.Add(b, d.gpus, 0, func() { x.free(b) })
		}
	}
}

// use is memory that a graph's node uses.
type use struct {
	p     driver.Ptr
	bytes int
	typ   driver.MemoryType
}

// captured is a function of a graph, with its number.
type captured struct {
	number uintptr
	f      *function
}

// uses notes memory, except ordinary memory of the host, which the driver doesn't track.
func (c *capture) uses(list ...use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range list {
		if u.typ != driver.Unmanaged {
			c.memory = append(c.memory, u)
		}
	}
}

// recording reports whether the stream is being captured, by the driver or by other code. It's locked.
func (s *stream) recording() bool { return s.capture != nil || s.foreign() }

// foreign reports whether other code captures the stream: one that was adopted, or one that waits for an event which
// was recorded in such a capture. The library knows when that capture is over. The stream is locked.
func (s *stream) foreign() bool {
	if s.capture != nil || s.adopted == 0 && !s.joined {
		return false
	}
	if s.status() != abi.CaptureNone {
		return true
	}
	s.joined = false
	return false
}

// status asks the library, for an adopted stream once while the thread is bound to the device.
func (s *stream) status() int32 {
	x := s.b.bound.on(s.b)
	if x == nil || s.adopted == 0 || s.joined || s.capture != nil {
		return s.b.status(s.h)
	}
	for _, c := range x.captures {
		if c.stream == s.h {
			return c.status
		}
	}
	v := s.b.status(s.h)
	x.captures = append(x.captures, captureOf{s.h, v})
	return v
}

func (b *gpu) status(h abi.Stream) int32 {
	v := new(int32)
	if b.IsCapturing == nil || b.do(func() abi.Result { return b.IsCapturing(h, v) }) != abi.Success {
		return abi.CaptureNone
	}
	return *v
}

// unlessCaptured refuses what asks about the work of a stream, and invalidates its capture. It's locked.
func (s *stream) unlessCaptured(op string) error {
	if !s.recording() {
		return nil
	}
	if s.capture != nil {
		s.capture.invalid.Store(true)
	}
	return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured", uintptr(s.h))
}

// permits refuses work on a stream whose capture is invalid. It's locked.
func (s *stream) permits(op string) error {
	if s.capture != nil && s.capture.invalid.Load() {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "the capture of stream %#x was invalidated", uintptr(s.h))
	}
	return nil
}

// meets prepares that a stream waits for an event, which may make it join the event's capture. Both are locked.
func (s *stream) meets(op string, e *event) error {
	if err := s.permits(op); err != nil {
		return err
	}
	switch foreign := s.foreign(); {
	case e.foreign && s.capture != nil:
		s.capture.invalid.Store(true)
		return driver.Errorf(driver.ErrCapture, s.b.Name, op,
			"stream %#x, which is captured, waits for an event of another capture", uintptr(s.h))
	case e.foreign: // of the capture that the stream is in, or joins; the library knows one that is over
		s.joined = true
		return nil
	case foreign:
		return driver.Errorf(driver.ErrCapture, s.b.Name, op,
			"stream %#x, which another library captures, waits for what was recorded outside of the capture", uintptr(s.h))
	}
	refuse := func(why string) error {
		for _, c := range []*capture{s.capture, e.capture} {
			if c != nil && !c.over.Load() {
				c.invalid.Store(true)
			}
		}
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x, %s", uintptr(s.h), why)
	}
	c := e.capture
	switch {
	case c == nil && s.capture == nil, c != nil && c == s.capture:
		return nil
	case c == nil:
		return refuse("which is captured, waits for what was recorded outside of the capture")
	case c.over.Load():
		return refuse("waits for an event of a capture that is over")
	case s.capture != nil:
		return refuse("which is captured, waits for an event of another capture")
	case c.invalid.Load():
		return refuse("waits for an event of a capture that was invalidated")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	s.capture = c
	return nil
}

// CaptureBegin is [driver.Graphs].CaptureBegin. Any thread may go on with the capture, and nothing that others do
// meanwhile disturbs it.
func (d *Driver) CaptureBegin(h driver.StreamHandle) error {
	const op = "begin capture"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	if err := s.b.caps.Need("graphs"); err != nil {
		return driver.Errorf(driver.ErrUnsupported, s.b.Name, op, "%w", err)
	}
	if s.recording() {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured already", uintptr(h))
	}
	err = s.result(op, "StreamBeginCapture", func() abi.Result { return s.b.BeginCapture(s.h, abi.CaptureModeRelaxed) })
	if err != nil {
		return err
	}
	s.capture = &capture{origin: s, streams: []*stream{s}}
	return nil
}

// EndCapture is that of [base.Front].
func (s *stream) EndCapture(op string) (*graph, error) {
	d := s.b.d
	c := s.capture
	refuse := func(why string) (*graph, error) {
		return nil, driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x %s", uintptr(s.h), why)
	}
	if c == nil || c.origin != s {
		if c != nil {
			c.invalid.Store(true)
		}
		s.Unlock()
		return refuse("is not where a capture has begun")
	}
	g := new(abi.Graph)
	r := s.b.do(func() abi.Result { return s.b.EndCapture(s.h, g) })
	s.capture = nil
	c.over.Store(true)
	s.Unlock()
	c.mu.Lock()
	streams := c.streams
	c.mu.Unlock()
	for _, o := range streams {
		if o != s {
			o.Lock()
			if o.capture == c {
				o.capture = nil
			}
			o.Unlock()
		}
	}
	list := slices.Collect(maps.Values(c.scratch))
	if r != abi.Success || c.invalid.Load() {
		d.dropFunctions(s.b, c.functions)
		d.dropModules(c.modules...)
		d.dropScratch(s.b, list)
		if r == abi.Success {
			_ = s.b.relaxed(func() abi.Result { return s.b.Library.GraphDestroy(*g) })
			return refuse("has a capture that was invalidated")
		}
		if !r.Capture() && !r.Sticky() { // the library says so in other ways too
			return refuse("has a capture that came to nothing: " + s.b.failed("StreamEndCapture", r).Error())
		}
		return nil, s.b.result(op, "StreamEndCapture", r)
	}
	return &graph{b: s.b, h: *g, memory: distinct(c.memory), functions: c.functions, modules: c.modules,
		scratch: list}, nil
}

// CaptureStatus is that of [base.Front].
func (s *stream) CaptureStatus() driver.CaptureStatus {
	if s.capture == nil && s.adopted == 0 && !s.joined {
		return driver.NotCapturing
	}
	if s.capture != nil && s.capture.invalid.Load() {
		return driver.CaptureInvalidated
	}
	switch s.status() {
	case abi.CaptureNone:
		s.joined = false
		return driver.NotCapturing
	case abi.CaptureActive:
		return driver.Capturing
	}
	if s.capture != nil {
		s.capture.invalid.Store(true)
	}
	return driver.CaptureInvalidated
}

// dropFunctions forgets functions of a graph when no run of it is under way.
func (d *Driver) dropFunctions(b *gpu, list []captured) {
	if len(list) == 0 {
		return
	}
	d.deferred.Add(b, d.gpus, 0, func() {
		d.launching.Lock()
		defer d.launching.Unlock()
		for _, c := range list {
			if c.f.uses.Add(-1) == 0 {
				c.f.drop()
				forgetFunction(c.number)
				b.keepWord(c.f.word)
			}
		}
	})
}
