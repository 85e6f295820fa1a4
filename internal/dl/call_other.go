//go:build !((linux || darwin) && (amd64 || arm64))

package dl

import (
	"errors"
	"fmt"
	"runtime"
)

func open(place string, _ bool) (uintptr, error) {
	return 0, fmt.Errorf("%s: libraries are not opened on %s/%s: %w", place, runtime.GOOS, runtime.GOARCH,
		errors.ErrUnsupported)
}

// No library is ever open here.

func loaded(string, bool) (uintptr, bool)     { return 0, false }
func symbol(uintptr, string) (uintptr, bool)  { panic("dl: unreachable") }
func call(uintptr, []uintptr) uintptr         { panic("dl: unreachable") }
func closeLibrary(uintptr)                    { panic("dl: unreachable") }
func register(any, uintptr)                   { panic("dl: unreachable") }
func callback(func(uintptr)) uintptr          { panic("dl: unreachable") }
func callback3(func(a, b, c uintptr)) uintptr { panic("dl: unreachable") }
