//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// text copies a C string; the default stands for NULL.
func text(s *C.char, def string) string {
	if s == nil {
		return def
	}
	return C.GoString(s)
}

// counted refuses a C array of n entries that can't be: none at NULL, and at most most, lest it's read past its end.
func counted[T any](what string, p *T, n C.int32_t, most int) error {
	switch {
	case n < 0 || n > 0 && p == nil:
		return refused("%d %s at %p", n, what, p)
	case int(n) > most:
		return refused("%d %s; there can be %d at most", n, what, most)
	}
	return nil
}

// slice views a C array; nil if it has no elements.
func slice[T any](p *T, n C.int32_t) []T {
	if n <= 0 || p == nil {
		return nil
	}
	return unsafe.Slice(p, int(n))
}

// hints copies hints; nil if there are none.
func hints(p *C.chorus_hint, n C.int32_t) (map[string]string, error) {
	if err := counted("hints", p, n, C.CHORUS_MAX_HINTS); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	m := make(map[string]string, n)
	for _, h := range slice(p, n) {
		if h.name == nil || h.value == nil {
			return nil, refused("a hint has no name or no value")
		}
		m[C.GoString(h.name)] = C.GoString(h.value)
	}
	return m, nil
}

// timeout turns nanoseconds into a duration; negative ones are refused elsewhere.
func timeout(ns C.int64_t) time.Duration { return time.Duration(ns) }

// sized refuses a struct that's missing or shorter than this library's.
func sized(what string, size C.uint32_t, want uintptr) error {
	if uintptr(size) < want {
		return refused("%s.size is %d; set it to sizeof, %d or more", what, size, want)
	}
	return nil
}
