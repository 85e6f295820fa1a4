//go:build cgo

package capi

import (
	"sync"
	"sync/atomic"
)

// A handle is a number that C holds for a Go value: 4 bits of kind, 20 bits of index, and 40 bits that count the uses
// of the index. So no handle occurs twice.
const (
	indexBits = 20
	genBits   = 40
	chunkBits = 8
)

// Kinds of handles, so that one kind passed for another is refused.
const (
	storeHandles = iota + 1
	commHandles
	workHandles
	windowHandles
	hookHandles
	deviceHandles
	streamHandles
	eventHandles
	graphHandles
	generatorHandles
)

// table maps handles of one kind to values. Looking up takes no lock.
type table[T any] struct {
	kind   uint64
	mu     sync.Mutex
	free   []uint64
	used   uint64 // indexes handed out at least once
	chunks [1 << (indexBits - chunkBits)]atomic.Pointer[[1 << chunkBits]entry[T]]
}

type entry[T any] struct {
	gen   atomic.Uint64
	value atomic.Pointer[T]
}

func (t *table[T]) entry(index uint64) *entry[T] {
	chunk := t.chunks[index>>chunkBits].Load()
	if chunk == nil {
		return nil
	}
	return &chunk[index&(1<<chunkBits-1)]
}

// put gives a value a handle; 0 if there are too many.
func (t *table[T]) put(v *T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var index uint64
	if n := len(t.free); n > 0 {
		index = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		if t.used == 1<<indexBits {
			return 0
		}
		index = t.used
		t.used++
		if t.entry(index) == nil {
			t.chunks[index>>chunkBits].Store(new([1 << chunkBits]entry[T]))
		}
	}
	e := t.entry(index)
	gen := e.gen.Add(1)
	e.value.Store(v)
	return t.kind<<(indexBits+genBits) | index<<genBits | gen
}

// find returns the entry of a handle that may have been released since.
func (t *table[T]) find(h uint64) (e *entry[T], index uint64) {
	if h>>(indexBits+genBits) != t.kind {
		return nil, 0
	}
	index = h >> genBits & (1<<indexBits - 1)
	return t.entry(index), index
}

// get returns a handle's value, or nil.
func (t *table[T]) get(h uint64) *T {
	e, _ := t.find(h)
	if e == nil {
		return nil
	}
	v := e.value.Load()
	if e.gen.Load() != h&(1<<genBits-1) {
		return nil
	}
	return v
}

// take removes a handle and returns its value, or nil.
func (t *table[T]) take(h uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, index := t.find(h)
	if e == nil || e.gen.Load() != h&(1<<genBits-1) {
		return nil
	}
	v := e.value.Swap(nil)
	if v != nil {
		t.free = append(t.free, index)
	}
	return v
}

var (
	stores  = table[storeRef]{kind: storeHandles}
	comms   = table[communicator]{kind: commHandles}
	works   = table[work]{kind: workHandles}
	windows = table[window]{kind: windowHandles}
	hooks   = table[hook]{kind: hookHandles}
)
