package kernel

import (
	"errors"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Plan is the runs of kernels that carry operations out, in order. The functions of the package add to it; Reset
// empties it and keeps its memory, so that a plan that's used again allocates nothing.
type Plan struct {
	Calls []loader.Call

	// Scratch returns memory of the device for the runs, aligned to 16 bytes at least, which is good until they are
	// done. Operations of several runs need it.
	Scratch func(bytes int) (device.Ptr, error)

	// Cores is [loader.Loader.Cores] of the device that the runs are for. It doesn't change what they compute.
	Cores int
	// Offsets is that of the device's properties. It doesn't change what they compute.
	Offsets bool

	// GEMM, FusedGEMM and SpMM are the types of matrices that libraries of the device multiply, as [library.Libraries]
	// says.
	GEMM, FusedGEMM, SpMM dtype.Set
	// Atomics lets libraries, and [Plan.GridSampleBackward] on GPUs, add with atomic operations, whose order isn't always
	// the same.
	Atomics bool

	one            [2]Operand                  // of an operation that is an elementwise one
	space, reduced space                       // of the operation that's being added
	images         [7][3 + text.MaxSpatial]int // sizes and strides of operands that an operation makes of others
	length         [1]int                      // sizes of the plan's own operands
	list           foreachRun                  // of tensors
	ones           []int                       // sizes of one element
}

// Reset takes all calls out.
func (p *Plan) Reset() { p.Calls = p.Calls[:0] }

// call adds a run in one dimension of n threads or more.
func (p *Plan) call(s text.Spec, n int) *loader.Call {
	block := int(s.Block)
	return p.blocks(s, device.Dim{X: (n + block - 1) / block, Y: 1, Z: 1})
}

// blocks adds a run of so many blocks.
func (p *Plan) blocks(s text.Spec, grid device.Dim) *loader.Call {
	if len(p.Calls) < cap(p.Calls) {
		p.Calls = p.Calls[:len(p.Calls)+1]
	} else {
		p.Calls = append(p.Calls, loader.Call{})
	}
	c := &p.Calls[len(p.Calls)-1]
	c.Spec, c.Grid, c.Block, c.Shape = s, grid, device.Dim{X: int(s.Block), Y: 1, Z: 1}, loader.Fixed
	c.Tunable, c.MatrixUnit, c.Library.Kind, c.Elements, c.Work = false, false, library.None, 0, 0
	c.Args.Reset()
	return c
}

// tiles adds a run of a block for each tile.
func (p *Plan) tiles(s text.Spec, grid device.Dim) *loader.Call {
	c := p.blocks(s, grid)
	c.Block = device.Dim{X: gemm.Threads, Y: gemm.Threads, Z: 1}
	return c
}

func (p *Plan) scratch(bytes int) (device.Ptr, error) {
	if p.Scratch == nil {
		return 0, errors.New("kernel: the operation needs memory for intermediate results, and the plan has no Scratch")
	}
	return p.Scratch(bytes)
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
