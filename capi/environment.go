//go:build cgo

package capi

// extern char **environ;
import "C"

import (
	"os"
	"strings"
	"unsafe"
)

// Go keeps the process's environment of its start. Changes that the program made before it loaded the library count as
// well.
func init() {
	now := map[string]string{}
	for p := C.environ; p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		if k, v, ok := strings.Cut(C.GoString(*p), "="); ok && k != "" {
			now[k] = v
		}
	}
	for _, e := range os.Environ() {
		k, v, _ := strings.Cut(e, "=")
		switch has, ok := now[k]; {
		case !ok:
			os.Unsetenv(k)
		case has == v:
			delete(now, k)
		}
	}
	for k, v := range now {
		os.Setenv(k, v)
	}
}
