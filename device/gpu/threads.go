package gpu

import (
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// threads are the operating system's threads on which a GPU is current until further notice, since [Driver.Bind] was
// called there: calls of the library need no context of their own on them.
type threads struct {
	any atomic.Int32 // how many there are
	mu  sync.RWMutex
	of  map[int]*binding

	spare []*binding // as many as threads were bound at the same time
}

// binding is what a thread has. It lasts as long as a call of an operation, in which no user of a stream begins or ends
// a capture, so that the library is asked about a stream's capture once.
type binding struct {
	*gpu
	captures []captureOf

	of      *threads
	id      int
	before  *binding
	release func() // end, made once: bindings are used again
}

// captureOf is what the library has said of a stream.
type captureOf struct {
	stream abi.Stream
	status int32
}

// add notes the calling thread, to which the goroutine is locked, until release is called there.
func (t *threads) add(b *gpu) (release func()) {
	id, ok := threadID()
	if !ok {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[int]*binding{}
	}
	var x *binding
	if n := len(t.spare); n > 0 {
		x, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		x = &binding{of: t}
		x.release = x.end
	}
	x.gpu, x.captures, x.id, x.before = b, x.captures[:0], id, t.of[id]
	t.of[id] = x
	t.any.Add(1)
	return x.release
}

func (x *binding) end() {
	t := x.of
	t.mu.Lock()
	defer t.mu.Unlock()
	t.any.Add(-1)
	if x.before == nil {
		delete(t.of, x.id)
	} else {
		t.of[x.id] = x.before
	}
	x.gpu, x.before = nil, nil
	t.spare = append(t.spare, x)
}

// on is the calling thread's binding to a GPU; nil for none. It's that thread's alone.
func (t *threads) on(b *gpu) *binding {
	if t.any.Load() == 0 {
		return nil
	}
	id, _ := threadID()
	t.mu.RLock()
	defer t.mu.RUnlock()
	if x := t.of[id]; x != nil && x.gpu == b {
		return x
	}
	return nil
}
