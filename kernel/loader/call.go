package loader

import (
	"github.com/chorus-comms/chorus/device"

	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Call is one run of a kernel.
type Call struct {
	Spec        text.Spec
	Grid, Block device.Dim
	Args        device.Args

	Shape    Shape
	Elements int  // see [device.Launch]
	Work     int  // elements that a thread goes through, if it's more than one
	Tunable  bool // it's a product of matrices, whose form is chosen by measuring

	MatrixUnit bool // the device's matrix unit may multiply

	Library library.Work // what a library may do instead
}

// Shape says what of a run's grid a loader may change. The operation is the same.
type Shape uint8

const (
	Fixed      Shape = iota
	AnyGrid          // blocks share the elements, however many blocks there are
	AnyThreads       // a thread has an element, however many a block has; on a processor it's AnyGrid
	AnyBlock         // threads of a block share its elements, however many there are: a power of two
	AnyTiles         // blocks compute tiles of a product, of any size
)

// Index adds a number of type I.
func (c *Call) Index(n int) {
	if c.Spec.Wide {
		c.Args.Int64(int64(n))
	} else {
		c.Args.Int32(int32(n))
	}
}
