package observe

import (
	"testing"
	"unsafe"
)

// TestHotLine holds that what the end of a collective of the lane's owner looks at and writes of its recorder is in one
// cache line, and what the beginning of a repeated one reads besides is in the one that follows.
func TestHotLine(t *testing.T) {
	var r Recorder
	if at, path, end := unsafe.Offsetof(r.own), unsafe.Offsetof(r.own.path), unsafe.Offsetof(r.own.trail); at != 0 ||
		path != 64 || end != 128 || unsafe.Sizeof(r)%64 != 0 || unsafe.Sizeof(r) > 1024 {
		t.Errorf("the lane begins at %d, its path at %d, what repeated operations don't need at %d; a recorder has %d bytes, so that they don't all begin at a line", at, path, end, unsafe.Sizeof(r))
	}
}
