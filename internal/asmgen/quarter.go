package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quarter elements, floats of 8 bits, are held as four vectors of float32, each a quarter of the memory. They need
// AVX-512.
//
// They are widened by way of f16, whose conversion knows subnormal numbers; the way back is that of package dtype.
type quarter struct {
	digits, bias uint32 // bits of the fraction, what is added to the exponent
	largest, nan uint32 // magnitudes: what is beyond the range becomes largest
	regs         *quarterRegs
}

type quarterRegs struct {
	magnitude, scale, special, infinity, sign reg.Register // to widen
	positive, last, offset, one, least, power reg.Register // to round
	largest, nan, byteSign                    reg.Register
}

func (q quarter) bits() int      { return 8 }
func (q quarter) registers() int { return 4 }

// dropped is how many digits a float32 has more.
func (q quarter) dropped() uint32 { return 23 - q.digits }

func (q quarter) constants(g *gen) elem {
	const bias = 127 // of float32
	drop := q.dropped()
	q.regs = &quarterRegs{
		positive: g.broadcast32(1<<31 - 1),
		last:     g.broadcast32(1 << drop),
		offset:   g.broadcast32(1<<(drop-1) - 1 - (bias-q.bias)<<23),
		one:      g.broadcast32(1),
		least:    g.broadcast32((bias + 1 - q.bias) << 23),
		power:    g.broadcast32((bias + 24 - q.bias - q.digits) << 23),
		largest:  g.broadcast32(q.largest),
		nan:      g.broadcast32(q.nan),
		byteSign: g.broadcast32(0x80),
	}
	if !q.upperHalf() {
		q.regs.magnitude = g.broadcast32(0x3f80_3f80)
		q.regs.sign = g.broadcast32(0x8000_8000)
		q.regs.scale = g.broadcast32((bias + 15 - q.bias) << 23)
		q.regs.special = g.broadcast32(math.Float32bits(480)) // what NaN would be
		q.regs.infinity = g.broadcast32(0x7f800000)
	}
	return q
}

// upperHalf reports whether the type is the upper half of f16.
func (q quarter) upperHalf() bool { return q.bias == 15 }

// parts calls body for each quarter of a vector of memory with its place and mask.
func (q quarter) parts(g *gen, m operand.Mem, mask reg.Register, body func(i int, m operand.Mem, mask reg.Register)) {
	for i := range q.registers() {
		rest := mask
		if mask != nil && i > 0 {
			rest = g.K()
			g.KSHIFTRQ(operand.U8(16*i), mask, rest)
		}
		body(i, m.Offset(16*i), rest)
	}
}

// orAnd is the truth table of dst | a & b.
const orAnd = operand.U8(0xf8)

func (q quarter) load(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	const atLeast = operand.U8(5)
	v := make([]operand.Op, q.registers())
	q.parts(g, m, mask, func(i int, m operand.Mem, mask reg.Register) {
		h, f := g.YMM(), g.vec()
		if mask == nil {
			g.VPMOVZXBW(m, h)
		} else {
			g.VPMOVZXBW_Z(m, mask, h)
		}
		v[i] = f
		if q.upperHalf() {
			g.VPSLLW(operand.U8(8), h, h)
			g.VCVTPH2PS(h, f)
			return
		}
		half := func(r reg.Register) reg.Register { return r.(reg.Vec).AsY() }
		sign, abs, special := g.YMM(), g.vec(), g.K()
		g.VPSLLW(operand.U8(8), h, sign)
		g.VPSLLW(operand.U8(7), h, h)
		g.VPANDD(half(q.regs.magnitude), h, h)
		g.VPTERNLOGD(orAnd, half(q.regs.sign), sign, h)
		g.VCVTPH2PS(h, f)
		g.VMULPS(q.regs.scale, f, f)
		g.VPANDD(q.regs.positive, f, abs)
		g.VPCMPUD(atLeast, q.regs.special, abs, special)
		g.VPORD(q.regs.infinity, f, special, f)
	})
	return v
}

func (q quarter) operands(g *gen, m operand.Mem, mask reg.Register) []operand.Op {
	return q.load(g, m, mask)
}

func (q quarter) pack(g *gen, v [][]operand.Op, oneNaN bool) [][]operand.Op {
	const less = operand.U8(1)
	if oneNaN {
		single.oneNaN(g, v)
	}
	for _, parts := range v {
		for i, x := range parts {
			abs, r := g.vec(), g.vec()
			odd, subnormal, nan := g.K(), g.K(), g.K()
			g.VPANDD(q.regs.positive, x, abs)
			g.VPTESTMD(q.regs.last, x, odd)
			g.VPADDD(q.regs.offset, abs, r)
			g.VPADDD(q.regs.one, r, odd, r)
			g.VPSRLD(operand.U8(q.dropped()), r, r)
			g.VPCMPUD(less, q.regs.least, abs, subnormal)
			g.VADDPS(q.regs.power, abs, abs)
			g.VPSUBD(q.regs.power, abs, subnormal, r)
			g.VPMINUD(q.regs.largest, r, r)
			g.VCMPPS(unordered, x, x, nan)
			g.VMOVDQA32(q.regs.nan, nan, r)
			g.VPSRLD(operand.U8(24), x, abs)
			g.VPTERNLOGD(orAnd, q.regs.byteSign, abs, r)
			parts[i] = r
		}
	}
	return v
}

func (q quarter) store(g *gen, packed []operand.Op, m operand.Mem, mask reg.Register) {
	q.parts(g, m, mask, func(i int, m operand.Mem, mask reg.Register) {
		if mask == nil {
			g.VPMOVDB(packed[i], m)
		} else {
			g.VPMOVDB(packed[i], mask, m)
		}
	})
}
