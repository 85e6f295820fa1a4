package hostmem_test

import (
	"fmt"

	"github.com/chorus-comms/chorus/hostmem"
)

// Memory that another process maps: what it needs is the descriptor, over a unix socket, size, colour and offset. Here
// it's this process.
func ExampleMap() {
	b, err := hostmem.Alloc(1 << 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Free()
	seg := b.Segment()
	m, err := hostmem.Map(seg.FD(), int64(seg.Size()), seg.Color())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Unmap()
	copy(b.Bytes(), "the same bytes")
	fmt.Printf("%s\n", m.Bytes()[b.Offset():][:14])
	// Output: the same bytes
}
