package base

import (
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// Numbers gives a driver's things their handles. They are odd, as no handle of a library is, so that one of a stream is
// never one of an event.
type Numbers struct {
	Driver string // its name, for errors
	last   atomic.Uintptr
}

func (n *Numbers) next() uintptr { return 2*n.last.Add(1) + 1 }

// Handles finds things of one type by their handles.
type Handles[H ~uintptr, T comparable] struct {
	numbers *Numbers
	what    string

	mu  sync.RWMutex
	all map[H]T
}

// NewHandles is empty. what names a thing in errors.
func NewHandles[H ~uintptr, T comparable](n *Numbers, what string) *Handles[H, T] {
	return &Handles[H, T]{numbers: n, what: what, all: map[H]T{}}
}

// Add gives a thing a handle.
func (t *Handles[H, T]) Add(v T) H {
	h := H(t.numbers.next())
	t.Put(h, v)
	return h
}

// Put gives a thing a handle that the library has chosen.
func (t *Handles[H, T]) Put(h H, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[h] = v
}

// Find returns what a handle stands for.
func (t *Handles[H, T]) Find(op string, h H) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.find(op, h)
}

// find is within mu.
func (t *Handles[H, T]) find(op string, h H) (v T, err error) {
	v, ok := t.all[h]
	if !ok {
		return v, t.unknown(op, h)
	}
	return v, nil
}

func (t *Handles[H, T]) unknown(op string, h H) error {
	return driver.Errorf(driver.ErrInvalidHandle, t.numbers.Driver, op, "no %s has the handle %#x", t.what, uintptr(h))
}

// Take takes out what a handle stands for.
func (t *Handles[H, T]) Take(op string, h H) (v T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, err = t.find(op, h)
	delete(t.all, h)
	return v, err
}

// Drop takes a thing out, unless its handle stands for another one by now.
func (t *Handles[H, T]) Drop(h H, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[h] == v {
		delete(t.all, h)
	}
}

// Life is the lock of a thing that has a handle. It may be gone when a call that has found it comes to it.
type Life struct {
	sync.Mutex
	Gone bool
}

func (l *Life) enter() bool {
	l.Lock()
	if l.Gone {
		l.Unlock()
	}
	return !l.Gone
}

// end makes it gone. It's locked.
func (l *Life) end() { l.Gone = true }

type living interface {
	comparable
	enter() bool
	end()
	Unlock()
}

// Enter returns what a handle stands for, locked.
func Enter[H ~uintptr, T living](t *Handles[H, T], op string, h H) (T, error) {
	t.mu.RLock()
	v, ok := t.all[h]
	t.mu.RUnlock()
	if ok && v.enter() {
		return v, nil
	}
	var none T
	return none, t.unknown(op, h)
}

// EnterBoth is Enter for two things, the first one first.
func EnterBoth[H, J ~uintptr, T, U living](t *Handles[H, T], u *Handles[J, U], op string, h H, j J) (v T, w U, err error) {
	if v, err = Enter(t, op, h); err != nil {
		return v, w, err
	}
	if w, err = Enter(u, op, j); err != nil {
		v.Unlock()
	}
	return v, w, err
}

// Stream is what all streams have.
type Stream struct {
	Life
	external traces.IDs
}

// External is the innermost of the IDs that were pushed. The stream is locked.
func (s *Stream) External() uint64 { return s.external.Innermost() }

// Base is the stream itself, of a driver's stream that embeds it.
func (s *Stream) Base() *Stream { return s }
