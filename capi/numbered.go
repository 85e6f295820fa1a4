//go:build cgo

package capi

// #include "shim.h"
import "C"

import "sync"

// numbered are things that texts stand for, each with a number, which is the same for the same text and stays known.
type numbered[T any] struct {
	first C.int32_t // number; those before it are others'

	mu     sync.RWMutex
	things []T
	number map[string]C.int32_t
}

// add is the number of a text, for which make is called if it's new.
func (n *numbered[T]) add(text string, make func(text string) (T, error)) (C.int32_t, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.number[text]; ok {
		return k, nil
	}
	x, err := make(text)
	if err != nil {
		return 0, err
	}
	if n.number == nil {
		n.number = map[string]C.int32_t{}
	}
	k := n.first + C.int32_t(len(n.things))
	n.things, n.number[text] = append(n.things, x), k
	return k, nil
}

// find is the thing of a number.
func (n *numbered[T]) find(number C.int32_t) (x T, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if k := int(number - n.first); k >= 0 && k < len(n.things) {
		return n.things[k], true
	}
	return x, false
}

// all are the things in the order of their numbers.
func (n *numbered[T]) all() []T {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.things[:len(n.things):len(n.things)]
}
