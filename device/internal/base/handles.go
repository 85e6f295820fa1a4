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
	tag    uintptr // of a driver whose handles no other one has; 0: a library gives handles, too
}

// tagged counts those that handles tell apart.
var tagged atomic.Uintptr

const tagShift = 40

// Tag makes the handles of these Numbers others than those of all that have a tag. Errors then say why a handle is
// wrong.
func (n *Numbers) Tag() {
	n.tag = tagged.Add(1)
	n.last.Store(n.tag << (tagShift - 1))
}

// Next is a handle that nothing has had.
func (n *Numbers) Next() uintptr { return 2*n.last.Add(1) + 1 }

// Handles finds things of one type by their handles.
type Handles[H ~uintptr, T entered[H, T]] struct {
	numbers *Numbers
	what    string

	mu   sync.RWMutex
	all  map[H]*Entry[H, T]
	last atomic.Pointer[Entry[H, T]] // the one that was asked for last, which is mostly asked for next; in all, or nil
}

// Entry is what a thing of type T embeds, so that a table allocates nothing for it: its handle, and the thing itself.
type Entry[H, T any] struct {
	h H
	v T
}

func (e *Entry[H, T]) entry() *Entry[H, T] { return e }

type entered[H, T any] interface {
	comparable
	entry() *Entry[H, T]
}

// NewHandles is empty. what names a thing in errors.
func NewHandles[H ~uintptr, T entered[H, T]](n *Numbers, what string) *Handles[H, T] {
	return &Handles[H, T]{numbers: n, what: what, all: map[H]*Entry[H, T]{}}
}

// Add gives a thing a handle.
func (t *Handles[H, T]) Add(v T) H {
	h := H(t.numbers.Next())
	t.Put(h, v)
	return h
}

// Put gives a thing a handle that the library has chosen.
func (t *Handles[H, T]) Put(h H, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(t.all[h])
	e := v.entry()
	e.h, e.v = h, v
	t.all[h] = e
}

// Find returns what a handle stands for.
func (t *Handles[H, T]) Find(op string, h H) (v T, err error) {
	if l := t.find(h); l != nil {
		return l.v, nil
	}
	return v, t.unknown(op, h)
}

// find returns nil if there's none.
func (t *Handles[H, T]) find(h H) *Entry[H, T] {
	if l := t.last.Load(); l != nil && l.h == h {
		return l
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.all[h]
	if l != nil {
		t.last.Store(l)
	}
	return l
}

func (t *Handles[H, T]) unknown(op string, h H) error {
	n := t.numbers
	why := "it was destroyed, or is something else"
	switch {
	case n.tag == 0:
		return driver.Errorf(driver.ErrInvalidHandle, n.Driver, op, "no %s has the handle %#x", t.what, uintptr(h))
	case h == 0:
		why = "it is null"
	case uintptr(h)>>tagShift != n.tag:
		why = "it was not made by this driver"
	}
	return driver.Errorf(driver.ErrInvalidHandle, n.Driver, op, "%#x is no %s: %s", uintptr(h), t.what, why)
}

// Take takes out what a handle stands for.
func (t *Handles[H, T]) Take(op string, h H) (v T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.all[h]
	if l == nil {
		return v, t.unknown(op, h)
	}
	t.remove(l)
	return l.v, nil
}

// Drop takes a thing out, unless its handle stands for another one by now.
func (t *Handles[H, T]) Drop(h H, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.all[h]; l != nil && l.v == v {
		t.remove(l)
	}
}

// remove is within mu. Nil is none.
func (t *Handles[H, T]) remove(l *Entry[H, T]) {
	if l != nil {
		delete(t.all, l.h)
		t.last.CompareAndSwap(l, nil)
	}
}

// Len is how many things have handles.
func (t *Handles[H, T]) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.all)
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
	enter() bool
	end()
	Unlock()
}

// Enter returns what a handle stands for, locked.
func Enter[H ~uintptr, T interface {
	entered[H, T]
	living
}](t *Handles[H, T], op string, h H) (T, error) {
	if l := t.find(h); l != nil && l.v.enter() {
		return l.v, nil
	}
	var none T
	return none, t.unknown(op, h)
}

// EnterBoth is Enter for two things, the first one first.
func EnterBoth[H, J ~uintptr, T interface {
	entered[H, T]
	living
}, U interface {
	entered[J, U]
	living
}](t *Handles[H, T], u *Handles[J, U], op string, h H, j J) (v T, w U, err error) {
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
