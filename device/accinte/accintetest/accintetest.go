// Package accintetest has, for tests, the kernel of [driver.Elements] as an emulated device runs it:
//
//	accinte.RegisterModule(image, map[string]accinte.Function{"copy_elements": accintetest.CopyElements})
package accintetest

import (
	"encoding/binary"
	"unsafe"

	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// CopyElements is copy_elements.
var CopyElements = accinte.Function{Run: run,
	Params: []driver.ParamKind{driver.ParamPointer, driver.ParamPointer, driver.ParamInt64, driver.ParamBytes}}

func run(b *accinte.Block) error {
	dst, src, layout := b.Memory(0), b.Memory(1), b.Struct(3)
	word := func(list, k int) int { return int(binary.NativeEndian.Uint64(layout[8+8*(8*list+k):])) }
	to, from := dtype.DType(binary.NativeEndian.Uint32(layout)), dtype.DType(binary.NativeEndian.Uint32(layout[4:]))
	for thread := range b.Threads.X {
		i := b.Index.X*b.Threads.X + thread
		if i >= int(b.Int64(2)) {
			break
		}
		var d, s int
		for k := 7; k >= 0; k-- {
			d, s, i = d+i%word(0, k)*word(1, k), s+i%word(0, k)*word(2, k), i/word(0, k)
		}
		kern.Convert(to, unsafe.Pointer(&dst[d]), from, unsafe.Pointer(&src[s]), 1)
	}
	return nil
}
