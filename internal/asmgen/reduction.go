package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reduction is one loop over any number of sources and destinations.
type reduction struct {
	op   string   // name of the operation in kern
	elem string   // name of the elements
	in   elem     // how they are held
	fold prepared // how they are combined
	nan  bool     // whether a result may be NaN
	// types are the element types served. Operations that don't look at signs serve signed and unsigned integers alike.
	types []string
}

func reductions() []reduction {
	type ctx = build.Context
	one := instruction
	list := []reduction{
		{"Sum", "8", plain(8), one((*ctx).VPADDB), false, []string{"Int8", "Uint8"}},
		{"Sum", "16", plain(16), one((*ctx).VPADDW), false, []string{"Int16", "Uint16"}},
		{"Sum", "32", plain(32), one((*ctx).VPADDD), false, []string{"Int32", "Uint32"}},
		{"Sum", "64", plain(64), one((*ctx).VPADDQ), false, []string{"Int64", "Uint64"}},
		{"Product", "8", plain(8), multiply8, false, []string{"Int8", "Uint8"}},
		{"Product", "16", plain(16), one((*ctx).VPMULLW), false, []string{"Int16", "Uint16"}},
		{"Product", "32", plain(32), one((*ctx).VPMULLD), false, []string{"Int32", "Uint32"}},
		{"Product", "64", plain(64), multiply64, false, []string{"Int64", "Uint64"}},
		{"Min", "I8", plain(8), one((*ctx).VPMINSB), false, []string{"Int8"}},
		{"Min", "I16", plain(16), one((*ctx).VPMINSW), false, []string{"Int16"}},
		{"Min", "I32", plain(32), one((*ctx).VPMINSD), false, []string{"Int32"}},
		{"Min", "I64", plain(64), extreme64((*ctx).VPMINSQ, false, false), false, []string{"Int64"}},
		{"Min", "U8", plain(8), one((*ctx).VPMINUB), false, []string{"Uint8"}},
		{"Min", "U16", plain(16), one((*ctx).VPMINUW), false, []string{"Uint16"}},
		{"Min", "U32", plain(32), one((*ctx).VPMINUD), false, []string{"Uint32"}},
		{"Min", "U64", plain(64), extreme64((*ctx).VPMINUQ, true, false), false, []string{"Uint64"}},
		{"Max", "I8", plain(8), one((*ctx).VPMAXSB), false, []string{"Int8"}},
		{"Max", "I16", plain(16), one((*ctx).VPMAXSW), false, []string{"Int16"}},
		{"Max", "I32", plain(32), one((*ctx).VPMAXSD), false, []string{"Int32"}},
		{"Max", "I64", plain(64), extreme64((*ctx).VPMAXSQ, false, true), false, []string{"Int64"}},
		{"Max", "U8", plain(8), one((*ctx).VPMAXUB), false, []string{"Uint8"}},
		{"Max", "U16", plain(16), one((*ctx).VPMAXUW), false, []string{"Uint16"}},
		{"Max", "U32", plain(32), one((*ctx).VPMAXUD), false, []string{"Uint32"}},
		{"Max", "U64", plain(64), extreme64((*ctx).VPMAXUQ, true, true), false, []string{"Uint64"}},
		{"BAnd", "8", plain(8), bitwise((*gen).and), false, []string{"Uint8"}},
		{"BOr", "8", plain(8), bitwise((*gen).or), false, []string{"Uint8"}},
		{"BXor", "8", plain(8), bitwise((*gen).xor), false, []string{"Uint8"}},
	}
	for _, f := range floats {
		types := []string{f.dtype}
		list = append(list,
			reduction{"Sum", f.name, f.in, f.sum(f.in), true, types},
			reduction{"Product", f.name, f.in, one(f.mul), true, types},
			reduction{"Min", f.name, f.in, f.extreme(false), true, types},
			reduction{"Max", f.name, f.in, f.extreme(true), true, types})
	}
	return list
}

// floats are the floating-point types that have assembly.
var floats = []struct {
	name, dtype string
	in          elem
	float
}{
	{"F32", "Float32", plain(32), single},
	{"F64", "Float64", plain(64), double},
	{"F16", "Float16", half{}, single},
	{"BF16", "BFloat16", bfloat{}, single},
	{"E4M3", "Float8E4M3FN", quarter{digits: 3, bias: 7, largest: 0x7e, nan: 0x7f}, single},
	{"E5M2", "Float8E5M2", quarter{digits: 2, bias: 15, largest: 0x7c, nan: 0x7f}, single},
}

// reduction writes the function of r and its table entries.
//
// The loop holds a few vectors of the result in registers while it goes through the sources, and stores them to every
// destination. So each element is read once and written once for any number of either, and the narrow floats are
// rounded once.
func (g *gen) reduction(r reduction) {
	name := "reduce" + r.op + r.elem + g.suffix()
	step := g.width() * 8 / r.in.bits()
	if g.avx512 {
		step = 1
	}
	g.begin(name, fmt.Sprintf("%s combines %d-bit elements by %s: dst[i] = srcs[0][i] op srcs[1][i] op ... for every dst. There must be two\n// sources or more, and n must be a multiple of %d.",
		name, r.in.bits(), r.op, step), "dsts, srcs []unsafe.Pointer, off, n int", "dsts, srcs []uintptr, off, n int")
	for _, t := range r.types {
		fmt.Fprintf(&g.tables, "l.reduce[%s][dtype.%s] = reduceKernel{%s, %d}\n", r.op, t, name, step)
	}

	l := reduceLoop{
		elem:  r.in.constants(g),
		fold:  r.fold(g),
		nan:   r.nan,
		dsts:  g.Load(g.Param("dsts").Base(), g.GP64()),
		ndst:  g.Load(g.Param("dsts").Len(), g.GP64()),
		srcs:  g.Load(g.Param("srcs").Base(), g.GP64()),
		nsrc:  g.Load(g.Param("srcs").Len(), g.GP64()),
		off:   g.param("off"),
		bytes: g.param("n"),
		src:   [2]reg.Register{g.GP64(), g.GP64()},
		dst:   g.GP64(),
	}
	g.MOVQ(operand.Mem{Base: l.srcs}, l.src[0])
	g.MOVQ(operand.Mem{Base: l.srcs, Disp: 8}, l.src[1])
	g.MOVQ(operand.Mem{Base: l.dsts}, l.dst)
	if s := shift(r.in); s > 0 {
		g.SHLQ(operand.U8(s), l.bytes)
	}
	g.stripes(r.in, l.bytes, func(vectors int, mask reg.Register) {
		l.stripe(g, vectors, mask)
		g.ADDQ(operand.U32(uint32(vectors*g.width())), l.off)
	})
	g.end()
}

// reduceLoop is the registers that last through a reduction.
type reduceLoop struct {
	elem                               elem
	fold                               fold
	nan                                bool
	dsts, ndst, srcs, nsrc, off, bytes reg.Register
	src                                [2]reg.Register // the first sources
	dst                                reg.Register    // the first destination
}

// stripe reduces some vectors at off. The first two sources and the first destination, which all reductions have, stand
// outside of the loops, as two ranks on one host have little else.
func (l *reduceLoop) stripe(g *gen, vectors int, mask reg.Register) {
	at := func(p reg.Register, i int) operand.Mem {
		return operand.Mem{Base: p, Index: l.off, Scale: 1, Disp: i * g.width()}
	}
	acc := make([][]operand.Op, vectors)
	for i := range acc {
		acc[i] = l.elem.load(g, at(l.src[0], i), mask)
	}
	fold := func(p reg.Register) {
		for i := range acc {
			for part, src := range l.elem.operands(g, at(p, i), mask) {
				l.fold(g, acc[i][part], src)
			}
		}
	}
	fold(l.src[1])
	others(g, l.srcs, l.nsrc, 2, fold)

	acc = l.elem.pack(g, acc, l.nan)
	store := func(p reg.Register) {
		for i := range acc {
			l.elem.store(g, acc[i], at(p, i), mask)
		}
	}
	store(l.dst)
	others(g, l.dsts, l.ndst, 1, store)
}

// others writes the loop over the pointers of a slice from number first on.
func others(g *gen, slice, length reg.Register, first int, body func(p reg.Register)) {
	p, j := g.GP64(), g.GP64()
	loop, done := g.label("next"), g.label("all")
	g.MOVQ(operand.U32(uint32(first)), j)
	g.Label(loop)
	g.CMPQ(j, length)
	g.JE(operand.LabelRef(done))
	g.MOVQ(operand.Mem{Base: slice, Index: j, Scale: 8}, p)
	body(p)
	g.INCQ(j)
	g.JMP(operand.LabelRef(loop))
	g.Label(done)
}

// stripes writes the loops over a number of bytes: several vectors at a time, then one at a time. With AVX-512 the last
// vector is masked; without it, bytes is a multiple of the vector. body handles the vectors and advances its pointers.
func (g *gen) stripes(e elem, bytes reg.Register, body func(vectors int, mask reg.Register)) {
	unroll := min(4, 8/e.registers()) // 8 registers for results of 32, with AVX2 of 16
	if !g.avx512 {
		unroll = 8 / e.registers()
	}
	many, few, done := g.label("many"), g.label("few"), g.label("done")
	g.Label(many)
	g.CMPQ(bytes, operand.U32(uint32(unroll*g.width())))
	g.JL(operand.LabelRef(few))
	body(unroll, nil)
	g.SUBQ(operand.U32(uint32(unroll*g.width())), bytes)
	g.JMP(operand.LabelRef(many))

	g.Label(few)
	g.TESTQ(bytes, bytes)
	g.JLE(operand.LabelRef(done))
	var mask reg.Register
	if g.avx512 {
		count, ones := g.GP64(), g.GP64()
		g.MOVQ(bytes, count)
		if s := shift(e); s > 0 {
			g.SHRQ(operand.U8(s), count)
		}
		g.MOVQ(operand.I32(-1), ones)
		g.BZHIQ(count, ones, ones) // as many ones as there are elements left; up to 255 are possible here and understood
		mask = g.K()
		g.KMOVQ(ones, mask)
	}
	body(1, mask)
	g.SUBQ(operand.U32(uint32(g.width())), bytes)
	g.JMP(operand.LabelRef(few))
	g.Label(done)
}

// shift is the binary logarithm of an element's bytes.
func shift(e elem) int { return bits.TrailingZeros(uint(e.bits() / 8)) }
