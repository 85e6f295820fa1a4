package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Stream is a stream of bytes between an engine and the kernel beside it. It holds what comes until it's taken.
type Stream struct {
	mu   sync.Mutex
	data []byte
	news chan struct{} // closed when there are more
}

// NewStream returns a stream that holds nothing.
func NewStream() *Stream { return &Stream{news: make(chan struct{})} }

// Push puts bytes in.
func (s *Stream) Push(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = append(s.data, b...)
	close(s.news)
	s.news = make(chan struct{})
}

// pull fills b, and reports whether it could before it was to stop.
func (s *Stream) pull(b []byte, stop <-chan struct{}) bool {
	for {
		s.mu.Lock()
		news := s.news
		if len(s.data) >= len(b) {
			copy(b, s.data)
			s.data = slices.Delete(s.data, 0, len(b))
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		select {
		case <-news:
		case <-stop:
			return false
		}
	}
}

// Pull fills b with the stream's next bytes.
func (s *Stream) Pull(ctx context.Context, b []byte) error {
	if s.pull(b, ctx.Done()) {
		return nil
	}
	return context.Cause(ctx)
}

func (s *Stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = nil
}

// outputs are the streams from an engine to the kernel.
type outputs struct {
	mu      sync.Mutex
	streams map[uint32]*Stream
	kernel  func(dest uint32, data []byte)
}

func (o *outputs) init(e *Engine) {
	o.streams = map[uint32]*Stream{}
	if e.cfg.Loopback {
		o.kernel = func(_ uint32, data []byte) { e.in.Push(data) }
	}
}

func (o *outputs) to(dest uint32) *Stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[dest]
	if s == nil {
		s = NewStream()
		o.streams[dest] = s
	}
	return s
}

func (o *outputs) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s := range maps.Values(o.streams) {
		s.reset()
	}
}

// push hands data to the kernel.
func (o *outputs) push(dest uint32, data []byte) {
	o.mu.Lock()
	kernel := o.kernel
	o.mu.Unlock()
	if kernel != nil {
		kernel(dest, data)
		return
	}
	o.to(dest).Push(data)
}

// FromKernel is the stream from the kernel to the engine.
func (e *Engine) FromKernel() *Stream { return e.in }

// ToKernel is a stream from the engine to the kernel: its id is that of a stream put, or a receive's tag.
func (e *Engine) ToKernel(dest uint32) *Stream { return e.out.to(dest) }

// AttachKernel has a function take the data to the kernel, instead of the streams of ToKernel. It's called on the
// goroutines that bring it, in order for each sender; the data is its only until it returns.
func (e *Engine) AttachKernel(f func(dest uint32, data []byte)) {
	e.out.mu.Lock()
	defer e.out.mu.Unlock()
	e.out.kernel = f
}

// streamOf returns the stream that a message is for; false if it's for memory.
func streamOf(h *abi.Header) (dest uint32, ok bool) { return h.Stream - abi.StreamBase, h.Stream != 0 }
