package record

import (
	"testing"
	"unsafe"
)

// TestHotLine checks the recorder's layout. The fields that the end of a collective of the lane's owner reads and
// writes are in one cache line. The fields that the begin of a repeated one reads besides are in the next line.
func TestHotLine(t *testing.T) {
	var r Recorder
	if at, path, end := unsafe.Offsetof(r.own), unsafe.Offsetof(r.own.path), unsafe.Offsetof(r.own.trail); at != 0 ||
		path != 64 || end != 128 || unsafe.Sizeof(r)%64 != 0 || unsafe.Sizeof(r) > 1024 {
		t.Errorf("the lane begins at %d, its path at %d, what repeated operations don't need at %d; a recorder has %d bytes, so that they don't all begin at a line", at, path, end, unsafe.Sizeof(r))
	}
}
