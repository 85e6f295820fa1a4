//go:build (linux || darwin) && (amd64 || arm64)

package dl

import (
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

func open(place string, global bool) (uintptr, error) {
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	runtime.LockOSThread() // the text of an error is the thread's
	defer runtime.UnlockOSThread()
	return purego.Dlopen(place, mode)
}

// loaded opens a library that the process has loaded.
func loaded(place string, global bool) (uintptr, bool) {
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL | noLoad
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL | noLoad
	}
	handle, err := purego.Dlopen(place, mode)
	return handle, err == nil && handle != 0
}

func symbol(handle uintptr, name string) (uintptr, bool) {
	a, err := purego.Dlsym(handle, name)
	return a, err == nil && a != 0
}

// arguments are where a call has its words: purego wants them on the heap.
var arguments = sync.Pool{New: func() any { return new([maxWords]uintptr) }}

func call(f uintptr, args []uintptr) uintptr {
	words := arguments.Get().(*[maxWords]uintptr)
	n := copy(words[:], args)
	r, _, _ := purego.SyscallN(f, words[:n]...)
	arguments.Put(words)
	return r
}

func closeLibrary(handle uintptr) { purego.Dlclose(handle) }

func register(f any, address uintptr) { purego.RegisterFunc(f, address) }

func callback(f func(arg uintptr)) uintptr { return purego.NewCallback(f) }

func callback3(f func(a, b, c uintptr)) uintptr { return purego.NewCallback(f) }
