package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// mapping is one loop that computes each element of the destination from one of the source.
type mapping struct {
	name, doc string
	table     string // where it stands in a level
	elem      elem   // which elements to step through
	srcBits   int
	dstBits   int
	// prepare loads constants, with the kernel's operand c, and returns how some vectors of elem are computed.
	prepare func(g *gen, c operand.Mem) func(dst, src operand.Mem, mask reg.Register)
}

func mappings() []mapping {
	var list []mapping
	for _, f := range floats {
		list = append(list,
			arithmetic("scale", "*", f.dtype, f.in, f.name, instruction(f.mul)),
			arithmetic("divide", "/", f.dtype, f.in, f.name, instruction(f.div)))
	}
	return append(list, conversions()...)
}

// arithmetic is dst[i] = src[i] op c.
func arithmetic(verb, sign, dtype string, in elem, name string, by prepared) mapping {
	return mapping{
		name: verb + name, doc: fmt.Sprintf("computes dst[i] = src[i] %s c", sign),
		table: fmt.Sprintf("l.%s[dtype.%s]", verb, dtype),
		elem:  in, srcBits: in.bits(), dstBits: in.bits(),
		prepare: func(g *gen, c operand.Mem) func(dst, src operand.Mem, mask reg.Register) {
			in, apply, by := in.constants(g), by(g), g.vec()
			if in.bits() == 64 {
				g.VBROADCASTSD(c, by)
			} else {
				x := g.XMM()
				g.VMOVSD(c, x)
				g.VCVTSD2SS(x, x, x)
				g.VBROADCASTSS(x, by)
			}
			return func(dst, src operand.Mem, mask reg.Register) {
				v := in.load(g, src, mask)
				for _, part := range v {
					apply(g, part, by)
				}
				in.store(g, in.pack(g, [][]operand.Op{v}, false)[0], dst, mask)
			}
		},
	}
}

// conversion steps through vectors of the wider of two types.
func conversion(from, to string, wide elem, narrowBits int, toNarrow bool,
	prepare func(g *gen) func(dst, src operand.Mem, mask reg.Register)) mapping {
	m := mapping{
		name: "convert" + from + "To" + to, doc: "converts src to dst",
		elem: wide, srcBits: narrowBits, dstBits: wide.bits(),
		prepare: func(g *gen, _ operand.Mem) func(dst, src operand.Mem, mask reg.Register) { return prepare(g) },
	}
	if toNarrow {
		m.srcBits, m.dstBits = m.dstBits, m.srcBits
	}
	m.table = fmt.Sprintf("l.convert[dtype.%s][dtype.%s]", dtypes[from], dtypes[to])
	return m
}

var dtypes = map[string]string{"F16": "Float16", "BF16": "BFloat16", "F32": "Float32", "F64": "Float64"}

func conversions() []mapping {
	single, double := plain(32), plain(64)
	return []mapping{
		conversion("F16", "F32", single, 16, false, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			return func(dst, src operand.Mem, mask reg.Register) {
				v := g.vec()
				if mask == nil {
					g.VCVTPH2PS(src, v)
				} else {
					g.VCVTPH2PS_Z(src, mask, v)
				}
				single.store(g, []operand.Op{v}, dst, mask)
			}
		}),
		conversion("BF16", "F32", single, 16, false, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			return func(dst, src operand.Mem, mask reg.Register) {
				v := g.vec()
				if mask == nil {
					g.VPMOVZXWD(src, v)
				} else {
					g.VPMOVZXWD_Z(src, mask, v)
				}
				g.VPSLLD(operand.U8(16), v, v)
				single.store(g, []operand.Op{v}, dst, mask)
			}
		}),
		conversion("F32", "F16", single, 16, true, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			return func(dst, src operand.Mem, mask reg.Register) {
				const toNearestEven = operand.U8(0)
				v := single.load(g, src, mask)[0]
				if mask == nil {
					g.VCVTPS2PH(toNearestEven, v, dst)
				} else {
					g.VCVTPS2PH(toNearestEven, v, mask, dst)
				}
			}
		}),
		conversion("F32", "BF16", single, 16, true, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			b := bfloat{}.constants(g).(bfloat)
			return func(dst, src operand.Mem, mask reg.Register) {
				v := b.quieted(g, single.load(g, src, mask)[0])
				g.VPSRLD(operand.U8(16), v, v)
				switch {
				case mask != nil:
					g.VPMOVDW(v, mask, dst)
				case g.avx512:
					g.VPMOVDW(v, dst)
				default: // VPACKUSDW packs within the halves of the register; bring the two quarters that count together
					const quarters0And2 = 0b00_00_10_00
					g.VPACKUSDW(v, v, v)
					g.VPERMQ(operand.U8(quarters0And2), v, v)
					g.VMOVDQU(v.(reg.Vec).AsX(), dst)
				}
			}
		}),
		conversion("F32", "F64", double, 32, false, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			return func(dst, src operand.Mem, mask reg.Register) {
				v := g.vec()
				if mask == nil {
					g.VCVTPS2PD(src, v)
				} else {
					g.VCVTPS2PD_Z(src, mask, v)
				}
				double.store(g, []operand.Op{v}, dst, mask)
			}
		}),
		conversion("F64", "F32", double, 32, true, func(g *gen) func(dst, src operand.Mem, mask reg.Register) {
			return func(dst, src operand.Mem, mask reg.Register) {
				v, h := double.load(g, src, mask)[0], g.halfVec()
				switch {
				case mask != nil:
					g.VCVTPD2PS(v, h)
					g.VMOVUPS(h, mask, dst)
				case g.avx512:
					g.VCVTPD2PS(v, h)
					g.VMOVUPS(h, dst)
				default:
					g.VCVTPD2PSY(v, h)
					g.VMOVUPS(h, dst)
				}
			}
		}),
	}
}

// mapping writes the function of m and its table entry.
func (g *gen) mapping(m mapping) {
	name := m.name + g.suffix()
	step := g.width() * 8 / m.elem.bits()
	if g.avx512 {
		step = 1
	}
	g.begin(name, fmt.Sprintf("%s %s; n is a multiple of %d.", name, m.doc, step),
		"dst, src unsafe.Pointer, n int, c float64", "dst, src uintptr, n int, c float64")
	fmt.Fprintf(&g.tables, "%s = mapKernel{%s, %d}\n", m.table, name, step)

	dst, src, bytes := g.param("dst"), g.param("src"), g.param("n")
	c, err := g.Param("c").Resolve()
	if err != nil {
		panic(err)
	}
	run := m.prepare(g, c.Addr)
	if s := shift(m.elem); s > 0 {
		g.SHLQ(operand.U8(s), bytes)
	}
	srcStep := g.width() * m.srcBits / m.elem.bits()
	dstStep := g.width() * m.dstBits / m.elem.bits()
	g.stripes(m.elem, bytes, func(vectors int, mask reg.Register) {
		for i := range vectors {
			run(operand.Mem{Base: dst, Disp: i * dstStep}, operand.Mem{Base: src, Disp: i * srcStep}, mask)
		}
		g.ADDQ(operand.U32(uint32(vectors*dstStep)), dst)
		g.ADDQ(operand.U32(uint32(vectors*srcStep)), src)
	})
	g.end()
}

// copyNT writes the copy with non-temporal stores.
func (g *gen) copyNT() {
	name := "copyNT" + g.suffix()
	const unroll = 4
	chunk := unroll * g.width()
	g.begin(name, fmt.Sprintf("%s copies bytes, a multiple of %d, from src to dst, which is aligned to %d, past the caches.", name, chunk, g.width()),
		"dst, src unsafe.Pointer, bytes int", "dst, src uintptr, bytes int")
	fmt.Fprintf(&g.tables, "l.copyNT = ntKernel{%s, %d, %d}\n", name, g.width(), chunk)
	dst, src, bytes := g.param("dst"), g.param("src"), g.param("bytes")
	loop, done := g.label("loop"), g.label("done")
	g.Label(loop)
	g.TESTQ(bytes, bytes)
	g.JLE(operand.LabelRef(done))
	var v [unroll]reg.Register
	for i := range v {
		v[i] = g.vec()
		g.loadFull(operand.Mem{Base: src, Disp: i * g.width()}, v[i])
	}
	for i := range v {
		g.VMOVNTDQ(v[i], operand.Mem{Base: dst, Disp: i * g.width()})
	}
	g.ADDQ(operand.U32(uint32(chunk)), src)
	g.ADDQ(operand.U32(uint32(chunk)), dst)
	g.SUBQ(operand.U32(uint32(chunk)), bytes)
	g.JMP(operand.LabelRef(loop))
	g.Label(done)
	g.SFENCE() // non-temporal stores are weakly ordered
	g.end()
}
