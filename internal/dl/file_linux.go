//go:build amd64 || arm64

package dl

import (
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// linkMap is the beginning of what dlinfo tells of a library (link.h).
type linkMap struct {
	_    uintptr // where it lies
	name *byte
}

const diLinkMap = 2 // RTLD_DI_LINKMAP, dlfcn.h of glibc; musl has it as well

// fileOf returns the file of an open library, empty if the C library can't tell.
func fileOf(handle uintptr) string {
	dlinfo, err := purego.Dlsym(purego.RTLD_DEFAULT, "dlinfo")
	if err != nil {
		return ""
	}
	var m *linkMap
	if r, _, _ := purego.SyscallN(dlinfo, handle, diLinkMap, uintptr(unsafe.Pointer(&m))); int32(r) != 0 || m == nil {
		return ""
	}
	return unix.BytePtrToString(m.name)
}
