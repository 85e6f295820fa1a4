package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// elem is how the elements in one vector's worth of memory live in registers.
type elem interface {
	// bits is the size of an element in memory.
	bits() int
	// registers is how many registers hold one vector of memory.
	registers() int
	// load reads a vector at m, all of it if mask is nil, else only the lanes of the mask (the others become zero).
	load(g *gen, m operand.Mem, mask reg.Register) []operand.Op
	// pack turns what load gives into what store takes, for some vectors at once, rounding where memory holds less than
	// registers. With oneNaN it replaces every NaN by the one that reductions give.
	pack(g *gen, v [][]operand.Op, oneNaN bool) [][]operand.Op
	// store writes a packed vector; lanes outside the mask are not written.
	store(g *gen, packed []operand.Op, m operand.Mem, mask reg.Register)
	// operands is what a fold may combine with registers: load, or memory itself.
	operands(g *gen, m operand.Mem, mask reg.Register) []operand.Op
	// constants loads the constants of load and pack, once per call of the kernel.
	constants(g *gen) elem
}

// plain elements are computed with as they are.
type plain int // bits

func (p plain) bits() int             { return int(p) }
func (p plain) registers() int        { return 1 }
func (p plain) constants(g *gen) elem { return p }

func (p plain) load(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	v := g.vec()
	if mask == nil {
		g.loadFull(m, v)
		return []operand.Op{v}
	}
	switch p {
	case 8:
		g.VMOVDQU8_Z(m, mask, v)
	case 16:
		g.VMOVDQU16_Z(m, mask, v)
	case 32:
		g.VMOVDQU32_Z(m, mask, v)
	case 64:
		g.VMOVDQU64_Z(m, mask, v)
	}
	return []operand.Op{v}
}

func (p plain) pack(g *gen, v [][]operand.Op, oneNaN bool) [][]operand.Op {
	switch {
	case oneNaN && p == 32:
		single.oneNaN(g, v)
	case oneNaN:
		double.oneNaN(g, v)
	}
	return v
}

func (p plain) store(g *gen, v []operand.Op, m operand.Mem, mask reg.Register) {
	if mask == nil {
		g.storeFull(v[0], m)
		return
	}
	switch p {
	case 8:
		g.VMOVDQU8(v[0], mask, m)
	case 16:
		g.VMOVDQU16(v[0], mask, m)
	case 32:
		g.VMOVDQU32(v[0], mask, m)
	case 64:
		g.VMOVDQU64(v[0], mask, m)
	}
}

func (p plain) operands(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	if mask == nil {
		return []operand.Op{m}
	}
	return p.load(g, m, mask)
}

// half elements are held as two vectors of float32: the first and the second half of the memory.
type half struct{}

func (half) bits() int             { return 16 }
func (half) registers() int        { return 2 }
func (h half) constants(*gen) elem { return h }

func (half) load(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	low, high := g.vec(), g.vec()
	next := m.Offset(g.width() / 2)
	if mask == nil {
		g.VCVTPH2PS(m, low)
		g.VCVTPH2PS(next, high)
	} else {
		rest := g.K()
		g.KSHIFTRD(operand.U8(16), mask, rest)
		g.VCVTPH2PS_Z(m, mask, low)
		g.VCVTPH2PS_Z(next, rest, high)
	}
	return []operand.Op{low, high}
}

func (h half) operands(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	return h.load(g, m, mask)
}

func (half) pack(g *gen, v [][]operand.Op, oneNaN bool) [][]operand.Op {
	const toNearestEven = operand.U8(0)
	if oneNaN {
		single.oneNaN(g, v)
	}
	packed := make([][]operand.Op, len(v))
	for i, parts := range v {
		low, high := g.halfVec(), g.halfVec()
		g.VCVTPS2PH(toNearestEven, parts[0], low)
		g.VCVTPS2PH(toNearestEven, parts[1], high)
		packed[i] = []operand.Op{low, high}
	}
	return packed
}

func (half) store(g *gen, packed []operand.Op, m operand.Mem, mask reg.Register) {
	next := m.Offset(g.width() / 2)
	switch {
	case mask != nil:
		rest := g.K()
		g.KSHIFTRD(operand.U8(16), mask, rest)
		g.VMOVDQU16(packed[0], mask, m)
		g.VMOVDQU16(packed[1], rest, next)
	case g.avx512:
		g.VMOVDQU64(packed[0], m)
		g.VMOVDQU64(packed[1], next)
	default:
		g.VMOVDQU(packed[0], m)
		g.VMOVDQU(packed[1], next)
	}
}
