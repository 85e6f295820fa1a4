package observe

import (
	"testing"
	"unsafe"
)

// TestHotLine holds that what a synchronous collective needs of its recorder is in one cache line.
func TestHotLine(t *testing.T) {
	var r Recorder
	if end := unsafe.Offsetof(r.others); end != 64 || unsafe.Sizeof(r)%64 != 0 || unsafe.Sizeof(r) > 512 {
		t.Errorf("the first line ends at %d; a recorder has %d bytes, so that they don't all begin at a line", end, unsafe.Sizeof(r))
	}
}
