package main

import (
	"encoding/binary"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// convertOpcode names an instruction that neither avo nor Go's assembler knows.
const convertOpcode = "VCVTNE2PS2BF16"

// convertTo16 rounds the float32 of low and high to bfloat16, into the lower and the upper half of dst. Where low and
// high are a bfloat's even and odd places, VPERMW with the words at inOrder as indices brings them back in order.
func (g *gen) convertTo16(low, high, dst operand.Op) {
	g.Instruction(&ir.Instruction{
		Opcode:   convertOpcode,
		Operands: []operand.Op{low, high, dst},
		Inputs:   []operand.Op{low, high},
		Outputs:  []operand.Op{dst},
		ISA:      []string{"AVX512_BF16"},
	})
}

// words writes the constant inOrder: 0, 16, 1, 17, and so on.
func (g *gen) words() {
	g.inOrder = g.StaticGlobal("inOrder")
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range uint32(16) {
		g.AppendDatum(operand.U32(i | (16+i)<<16))
	}
}

// encode replaces the instructions that Go's assembler doesn't know by their bytes.
func encode(file *ir.File) {
	for _, f := range file.Functions() {
		nodes := f.Nodes
		f.Nodes = nil
		for _, n := range nodes {
			i, ok := n.(*ir.Instruction)
			if !ok || i.Opcode != convertOpcode {
				f.Nodes = append(f.Nodes, n)
				continue
			}
			code := evex512(operandNumber(i, 0), operandNumber(i, 1), operandNumber(i, 2))
			f.Nodes = append(f.Nodes,
				ir.NewComment(convertOpcode+" "+i.Operands[0].Asm()+", "+i.Operands[1].Asm()+", "+i.Operands[2].Asm()),
				&ir.Instruction{Opcode: "LONG", Operands: []operand.Op{operand.U32(binary.LittleEndian.Uint32(code[:4]))}},
				&ir.Instruction{Opcode: "WORD", Operands: []operand.Op{operand.U16(binary.LittleEndian.Uint16(code[4:]))}})
		}
	}
}

// operandNumber is the number of the register that was allocated for an operand.
func operandNumber(i *ir.Instruction, k int) byte {
	return byte(i.Operands[k].(reg.Physical).PhysicalIndex())
}

// evex512 encodes VCVTNE2PS2BF16 dst, high, low, in Intel's order EVEX.512.F2.0F38.W0 72 /r: see the section on EVEX of
// Intel's Software Developer's Manual, volume 2. Bits of register numbers stand inverted in the prefix.
func evex512(low, high, dst byte) [6]byte {
	bit := func(n byte, i uint) byte { return ^n >> i & 1 }
	const (
		map0F38  = 0b010
		fixed    = 1 << 2
		prefixF2 = 0b11
		length   = 0b10 << 5 // 512 bits
		register = 0b11 << 6
	)
	return [6]byte{
		0x62,
		bit(dst, 3)<<7 | bit(low, 4)<<6 | bit(low, 3)<<5 | bit(dst, 4)<<4 | map0F38,
		(^high&15)<<3 | fixed | prefixF2,
		length | bit(high, 4)<<3,
		0x72,
		register | dst&7<<3 | low&7,
	}
}
