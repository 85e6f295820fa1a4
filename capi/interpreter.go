//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/observe/record"
)

// stackRoom is how much of Python's stacks is read, in bytes.
const stackRoom = 256 << 10

// python is the Python program whose library this is, if it's one.
type python struct{}

func init() { record.SetInterpreter(python{}) }

func (python) Stacks() (text string, main uint64) {
	buf := make([]byte, stackRoom)
	n := C.shim_stacks((*C.char)(unsafe.Pointer(&buf[0])), stackRoom)
	return string(buf[:n]), uint64(C.shim_host_thread())
}

func (python) Inner() []string {
	list := C.shim_inner()
	if list == nil {
		return nil
	}
	return strings.Split(C.GoString(list), ":")
}
