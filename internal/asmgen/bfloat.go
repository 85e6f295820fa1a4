package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bfloat elements are held as two vectors of float32: the elements at even places and those at odd places. A bfloat16
// is the upper half of a float32, so neither needs a shuffle.
type bfloat struct {
	upper, half, one, quiet reg.Register
	last                    reg.Register // AVX-512: the last digit that stays
	inOrder                 reg.Register // AVX-512 with BF16
}

func (b bfloat) bits() int      { return 16 }
func (b bfloat) registers() int { return 2 }

func (b bfloat) constants(g *gen) elem {
	b = bfloat{upper: g.broadcast32(0xffff0000), half: g.broadcast32(0x7fff), one: g.broadcast32(1),
		quiet: g.broadcast32(0x400000)}
	if g.avx512 {
		b.last = g.broadcast32(0x10000)
	}
	if g.bf16 {
		b.inOrder = g.vec()
		g.loadFull(g.inOrder, b.inOrder)
	}
	return b
}

func (b bfloat) load(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	pair := plain(16).load(g, m, mask)[0]
	even, odd := g.vec(), g.vec()
	g.VPSLLD(operand.U8(16), pair, even)
	g.and(b.upper, pair, odd)
	return []operand.Op{even, odd}
}

func (b bfloat) operands(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	return b.load(g, m, mask)
}

func (b bfloat) store(g *gen, packed []operand.Op, m operand.Mem, mask reg.Register) {
	plain(16).store(g, packed, m, mask)
}

// pack rounds in a fast way, which is wrong for a few values, and tests whether there are any; if so, a slower way that
// is right for all follows, out of line. That one replaces NaN, too.
func (b bfloat) pack(g *gen, v [][]operand.Op, oneNaN bool) [][]operand.Op {
	packed := make([][]operand.Op, len(v))
	for i := range packed {
		packed[i] = []operand.Op{g.vec()}
	}
	slow, done := g.label("slow"), g.label("packed")
	if g.bf16 {
		b.convert(g, v, packed, slow, oneNaN)
	} else {
		single.jumpIfNaN(g, slices.Concat(v...), slow)
		for i, parts := range v {
			b.merge(g, b.round(g, parts[0]), b.round(g, parts[1]), packed[i][0])
		}
	}
	g.Label(done)
	g.outOfLine(func() {
		g.Label(slow)
		round := b.quieted
		if oneNaN {
			single.replaceNaN(g, slices.Concat(v...))
			round = b.round // which leaves that one as it is
		}
		for i, parts := range v {
			b.merge(g, round(g, parts[0]), round(g, parts[1]), packed[i][0])
		}
		g.JMP(operand.LabelRef(done))
	})
	return packed
}

// convert packs by the processor's own conversion, which rounds as round does, knows NaN, and takes every subnormal
// number for zero. So it jumps to slow if there is one, or with oneNaN a NaN. That is told by masks in general
// registers, as operations on mask registers would take the place of vector operations.
func (b bfloat) convert(g *gen, v, packed [][]operand.Op, slow string, oneNaN bool) {
	const subnormal, quietNaN, signalingNaN = 0x20, 0x01, 0x80
	slowly := operand.U8(subnormal)
	if oneNaN {
		slowly |= quietNaN | signalingNaN
	}
	some := g.GP32()
	g.XORL(some, some)
	for _, parts := range v {
		for _, part := range parts {
			mask, lanes := g.K(), g.GP32()
			g.VFPCLASSPSZ(slowly, part, mask)
			g.KMOVW(mask, lanes)
			g.ORL(lanes, some)
		}
	}
	g.TESTL(some, some)
	g.JNE(operand.LabelRef(slow))
	for i, parts := range v {
		p := packed[i][0]
		g.convertTo16(parts[0], parts[1], p)
		g.VPERMW(p, b.inOrder, p)
	}
}

// merge writes the upper halves of even and odd to their places in dst.
func (b bfloat) merge(g *gen, even, odd, dst operand.Op) {
	g.VPSRLD(operand.U8(16), even, dst)
	if g.avx512 {
		g.VPTERNLOGD(orAnd, b.upper, odd, dst)
	} else {
		const oddWords = 0b10101010
		g.VPBLENDW(operand.U8(oddWords), odd, dst, dst)
	}
}

// round rounds v so that its upper halves are the nearest bfloat16, ties to even, where v isn't NaN. It adds just under
// half of the last digit that stays, and one more if that digit is odd.
func (b bfloat) round(g *gen, v operand.Op) reg.Register {
	r := g.vec()
	if g.avx512 {
		odd := g.K()
		g.VPTESTMD(b.last, v, odd)
		g.VPADDD(b.half, v, r)
		g.VPADDD(b.one, r, odd, r)
		return r
	}
	g.VPSRLD(operand.U8(16), v, r)
	g.and(b.one, r, r)
	g.VPADDD(b.half, r, r)
	g.VPADDD(v, r, r)
	return r
}

// quieted is round for all values. A NaN stays one, and becomes quiet, so that it's still one with the upper digits
// alone.
func (b bfloat) quieted(g *gen, v operand.Op) reg.Register {
	r := b.round(g, v)
	if g.avx512 {
		nan := g.K()
		g.VCMPPS(unordered, v, v, nan)
		g.VPORD(b.quiet, v, nan, r)
		return r
	}
	nan, quieted := g.vec(), g.vec()
	g.VCMPPS(unordered, v, v, nan)
	g.or(b.quiet, v, quieted)
	g.VBLENDVPS(nan, quieted, r, r)
	return r
}
