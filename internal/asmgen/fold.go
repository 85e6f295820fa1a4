package main

import (
	"math"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fold combines src, a register or memory, into the register acc.
type fold func(g *gen, acc, src operand.Op)

// A prepared fold first loads its constants, once per call of the kernel.
type prepared func(g *gen) fold

// instruction is the fold that is a single instruction.
func instruction(emit func(*build.Context, ...operand.Op)) prepared {
	return func(*gen) fold {
		return func(g *gen, acc, src operand.Op) { emit(g.Context, src, acc, acc) }
	}
}

// bitwise is the fold by one of gen's bitwise operations.
func bitwise(emit func(g *gen, b, a, dst operand.Op)) prepared {
	return func(*gen) fold {
		return func(g *gen, acc, src operand.Op) { emit(g, src, acc, acc) }
	}
}

// multiply8 multiplies bytes with 16-bit multiplications, even and odd bytes separately. The low byte of the product of
// two words is the product of their low bytes. The product of x/256 and y, its low byte cleared, holds the product of
// the high bytes in its high byte.
func multiply8(g *gen) fold {
	low, high := g.broadcast32(0x00ff00ff), g.broadcast32(0xff00ff00)
	return func(g *gen, acc, src operand.Op) {
		src = g.inRegister(src)
		odd, top := g.vec(), g.vec()
		g.VPSRLW(operand.U8(8), acc, odd)
		g.and(high, src, top)
		g.VPMULLW(top, odd, odd)
		g.VPMULLW(src, acc, acc)
		g.and(low, acc, acc)
		g.or(odd, acc, acc)
	}
}

// multiply64 multiplies 64-bit integers. AVX2 has only products of 32 bits: with x = x1*2^32 + x0 the low 64 bits are
// x0*y0 + (x1*y0 + x0*y1)*2^32.
func multiply64(g *gen) fold {
	if g.avx512 {
		return instruction((*build.Context).VPMULLQ)(g)
	}
	return func(g *gen, acc, src operand.Op) {
		src = g.inRegister(src)
		a, b := g.vec(), g.vec()
		g.VPSRLQ(operand.U8(32), acc, a)
		g.VPMULUDQ(src, a, a)
		g.VPSRLQ(operand.U8(32), src, b)
		g.VPMULUDQ(acc, b, b)
		g.VPADDQ(a, b, b)
		g.VPSLLQ(operand.U8(32), b, b)
		g.VPMULUDQ(src, acc, acc)
		g.VPADDQ(b, acc, acc)
	}
}

// extreme64 is the minimum or maximum of 64-bit integers, for which AVX2 has only the signed comparison; unsigned
// numbers compare like signed ones after their top bits are flipped.
func extreme64(wide func(*build.Context, ...operand.Op), unsigned, maximum bool) prepared {
	return func(g *gen) fold {
		if g.avx512 {
			return instruction(wide)(g)
		}
		flip := func(v operand.Op) operand.Op { return v }
		if unsigned {
			top := g.broadcast64(1 << 63)
			flip = func(v operand.Op) operand.Op {
				f := g.vec()
				g.xor(top, v, f)
				return f
			}
		}
		return func(g *gen, acc, src operand.Op) {
			src = g.inRegister(src)
			greater := g.vec()
			g.VPCMPGTQ(flip(src), flip(acc), greater) // acc > src
			if maximum {
				g.VBLENDVPD(greater, acc, src, acc)
			} else {
				g.VBLENDVPD(greater, src, acc, acc)
			}
		}
	}
}

// float is the instructions on one of the two floating-point types.
type float struct {
	// The NaN that reductions give, in every lane.
	nan func(g *gen) reg.Register
	// CF: whether the masks of a register are all ones.
	all                                    func(c *build.Context, k1, k2 operand.Op)
	add, mul, div, min, max, cmp, rng, mov func(*build.Context, ...operand.Op)
	addZeroing                             func(c *build.Context, src, acc, k, dst operand.Op)
}

var (
	single = float{func(g *gen) reg.Register { return g.broadcast32(0x7fc00000) }, (*build.Context).KORTESTW,
		(*build.Context).VADDPS, (*build.Context).VMULPS, (*build.Context).VDIVPS, (*build.Context).VMINPS,
		(*build.Context).VMAXPS,
		(*build.Context).VCMPPS, (*build.Context).VRANGEPS, (*build.Context).VMOVAPS, (*build.Context).VADDPS_Z}
	double = float{func(g *gen) reg.Register { return g.broadcast64(0x7ff8 << 48) }, (*build.Context).KORTESTB,
		(*build.Context).VADDPD, (*build.Context).VMULPD, (*build.Context).VDIVPD, (*build.Context).VMINPD,
		(*build.Context).VMAXPD,
		(*build.Context).VCMPPD, (*build.Context).VRANGEPD, (*build.Context).VMOVAPD, (*build.Context).VADDPD_Z}
)

// The predicates of comparisons that hold where either operand is NaN, and where neither is.
const (
	unordered = operand.U8(3)
	ordered   = operand.U8(7)
)

// oneNaN replaces every NaN in v by the one that reductions give, whatever processor they run on and in whichever
// order. There is seldom any, so it's done out of line.
func (f float) oneNaN(g *gen, v [][]operand.Op) {
	some, none := g.label("nan"), g.label("numbers")
	registers := slices.Concat(v...)
	f.jumpIfNaN(g, registers, some)
	g.Label(none)
	g.outOfLine(func() {
		g.Label(some)
		f.replaceNaN(g, registers)
		g.JMP(operand.LabelRef(none))
	})
}

// jumpIfNaN jumps to label if there is a NaN in v.
func (f float) jumpIfNaN(g *gen, v []operand.Op, label string) {
	if len(v)%2 == 1 {
		v = append(v, v[0])
	}
	if g.avx512 {
		all := g.K()
		for i := 0; i < len(v); i += 2 {
			if i == 0 {
				f.cmp(g.Context, ordered, v[i], v[i+1], all)
			} else {
				f.cmp(g.Context, ordered, v[i], v[i+1], all, all)
			}
		}
		f.all(g.Context, all, all)
		g.JCC(operand.LabelRef(label)) // not all are ones
		return
	}
	some := g.vec()
	for i := 0; i < len(v); i += 2 {
		nan := some
		if i > 0 {
			nan = g.vec()
		}
		f.cmp(g.Context, unordered, v[i], v[i+1], nan)
		if i > 0 {
			g.or(nan, some, some)
		}
	}
	bits := g.GP32()
	g.VMOVMSKPS(some, bits)
	g.TESTL(bits, bits)
	g.JNE(operand.LabelRef(label))
}

// replaceNaN replaces every NaN in v by the one that reductions give.
func (f float) replaceNaN(g *gen, v []operand.Op) {
	one := f.nan(g)
	for _, x := range v {
		if g.avx512 {
			nan := g.K()
			f.cmp(g.Context, unordered, x, x, nan)
			f.mov(g.Context, one, nan, x)
			continue
		}
		nan := g.vec()
		f.cmp(g.Context, unordered, x, x, nan)
		g.VBLENDVPS(nan, one, x, x)
	}
}

// sum adds.
func (f float) sum(in elem) prepared {
	return func(g *gen) fold {
		if _, ok := in.(half); ok || g.bf16 {
			return addFused(g)
		}
		return instruction(f.add)(g)
	}
}

// addFused adds float32 as acc + 1*src, which is the same number. The instruction may run where plain additions can't,
// and leaves those places to the conversions that come with the narrow floats.
func addFused(g *gen) fold {
	one := g.broadcast32(math.Float32bits(1))
	return func(g *gen, acc, src operand.Op) { g.VFMADD231PS(one, src, acc) }
}

// extreme is the minimum or maximum that propagates NaN and orders -0 before +0. VMIN and VMAX do neither: they return
// their second operand if either is NaN or both are zero.
func (f float) extreme(maximum bool) prepared {
	return func(g *gen) fold {
		if g.avx512 {
			return f.extremeByRange(maximum)
		}
		return f.extremeBothWays(maximum)
	}
}

// extremeByRange uses AVX-512's VRANGE, which orders the zeros; where either operand is NaN their sum is taken.
func (f float) extremeByRange(maximum bool) fold {
	which := operand.U8(4) // minimum, with the sign of the result
	if maximum {
		which = 5
	}
	return func(g *gen, acc, src operand.Op) {
		src = g.inRegister(src)
		nan, sum := g.K(), g.vec()
		f.cmp(g.Context, unordered, src, acc, nan)
		f.addZeroing(g.Context, src, acc, nan, sum)
		f.rng(g.Context, which, src, acc, acc)
		f.mov(g.Context, sum, nan, acc)
	}
}

// extremeBothWays takes the instruction with the operands in both orders. The two results differ only where one operand
// is NaN (one result is that NaN) or for zeros of either sign. For a minimum, or of the bits gives NaN and -0. For a
// maximum, and gives +0, and NaN must be added.
func (f float) extremeBothWays(maximum bool) fold {
	return func(g *gen, acc, src operand.Op) {
		src = g.inRegister(src)
		other := g.vec()
		if !maximum {
			f.min(g.Context, src, acc, other)
			f.min(g.Context, acc, src, acc)
			g.or(other, acc, acc)
			return
		}
		nan := g.vec()
		f.cmp(g.Context, unordered, src, acc, nan)
		f.max(g.Context, src, acc, other)
		f.max(g.Context, acc, src, acc)
		g.and(other, acc, acc)
		g.or(nan, acc, acc)
	}
}
