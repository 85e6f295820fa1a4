package kernel

import (
	"errors"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Call is one run of a kernel.
type Call struct {
	Spec        Spec
	Grid, Block device.Dim
	Args        device.Args

	shape     shape
	elements  int            // see [device.Launch]
	described bool           // it's a product of matrices, which may be tuned
	library   bool           // a library of products may do it instead
	product   device.Product // how
	fuses     bool           // a library of fused products may
	fused     device.FusedProduct
	sparse    bool // a library of sparse matrices may
	rows      device.SparseProduct
}

// shape says what of a run's grid a loader may change. The operation is the same.
type shape uint8

const (
	fixed    shape = iota
	anyGrid        // blocks share the elements, however many blocks there are
	anyBlock       // threads of a block share its elements, however many there are: a power of two
	anyTiles       // blocks compute tiles of a product, of any size
)

// Plan is the runs of kernels that carry operations out, in order. The functions of the package add to it; Reset
// empties it and keeps its memory, so that a plan that's used again allocates nothing.
type Plan struct {
	Calls []Call

	// Scratch returns memory of the device for the runs, aligned to 16 bytes at least, which is good until they are
	// done. Operations of several runs need it.
	Scratch func(bytes int) (device.Ptr, error)

	// Cores is [Loader.Cores] of the device that the runs are for. It doesn't change what they compute.
	Cores int

	// Products are the types of matrices that a library of the device multiplies: [Loader.Products].
	Products TypeSet
	// Fused are the types of matrices that another library multiplies: [Loader.Fused].
	Fused TypeSet
	// Sparse are the types of sparse matrices that a third one multiplies by dense ones: [Loader.Sparse].
	Sparse TypeSet
	// Atomics lets the first and the third one add with atomic operations, whose order isn't always the same.
	Atomics bool

	one            [2]Operand             // of an operation that is an elementwise one
	space, reduced space                  // of the operation that's being added
	images         [7][3 + maxSpatial]int // sizes and strides of operands that an operation makes of others
	length         [1]int                 // sizes of the plan's own operands
	list           foreachRun             // of tensors
	ones           []int                  // sizes of one element
}

// Reset takes all calls out.
func (p *Plan) Reset() { p.Calls = p.Calls[:0] }

// call adds a run in one dimension of n threads or more.
func (p *Plan) call(s Spec, n int) *Call {
	block := int(s.Block)
	return p.blocks(s, device.Dim{X: (n + block - 1) / block, Y: 1, Z: 1})
}

// blocks adds a run of so many blocks.
func (p *Plan) blocks(s Spec, grid device.Dim) *Call {
	if len(p.Calls) < cap(p.Calls) {
		p.Calls = p.Calls[:len(p.Calls)+1]
	} else {
		p.Calls = append(p.Calls, Call{})
	}
	c := &p.Calls[len(p.Calls)-1]
	c.Spec, c.Grid, c.Block, c.shape = s, grid, device.Dim{X: int(s.Block), Y: 1, Z: 1}, fixed
	c.described, c.library, c.fuses, c.sparse, c.elements = false, false, false, false, 0
	c.Args.Reset()
	return c
}

func (p *Plan) scratch(bytes int) (device.Ptr, error) {
	if p.Scratch == nil {
		return 0, errors.New("kernel: the operation needs memory for intermediate results, and the plan has no Scratch")
	}
	return p.Scratch(bytes)
}

// index adds a number of type I.
func (c *Call) index(n int) {
	if c.Spec.Wide {
		c.Args.Int64(int64(n))
	} else {
		c.Args.Int32(int32(n))
	}
}

// threads is how many a block of most kernels has.
const threads = 256

// slowElement is how many elements one counts for in [device.Launch] if it takes a processor tens of nanoseconds.
const slowElement = 8

// weightOf is how many elements each of an operation's counts for. Those that count more are complex, go through loops
// for each element, or take the longest functions of a library.
func weightOf(op string, compute dtype.DType) int {
	if compute.IsComplex() {
		return slowElement
	}
	switch op {
	case "pow", "norm", "fmod", "remainder", "div_floor", "gcd", "lcm", "lgamma", "digamma", "trigamma", "erfinv", "i0",
		"i0e", "i1", "i1e":
		return slowElement
	}
	return 1
}
