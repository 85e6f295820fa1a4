package comm

import (
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
)

// TestHotLines holds that what most operations say of themselves and get back is in two cache lines.
func TestHotLines(t *testing.T) {
	var c Comm
	var o backend.Op
	if at, first, second := unsafe.Offsetof(c.own), unsafe.Offsetof(o.Ctx), unsafe.Offsetof(o.Hints); at != 0 ||
		first != 64 || second > 128 || unsafe.Sizeof(c) < 512 {
		t.Errorf("the communicator's own operation begins at %d, its second line at %d and what most don't need at %d; a communicator has %d bytes, and only from 512 on each begins at a line",
			at, first, second, unsafe.Sizeof(c))
	}
}
