package abi

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestMove compares moves with their words, bit by bit as the firmware has them.
func TestMove(t *testing.T) {
	for _, c := range []struct {
		move  Move
		words []uint32
	}{
		{Move{Count: 3, ArithConfig: 9}, []uint32{0, 3, 9}},
		{Move{Op0: Slot{Opcode: MoveImmediate, Addr: 0x1_0000_2000},
			Res: Slot{Opcode: MoveImmediate, Addr: 0x3000, Host: true}, Count: 16, ArithConfig: 0x80},
			[]uint32{2 | 2<<6 | 1<<19, 16, 0x80, 0x2000, 1, 0x3000, 0}},
		// A fused receive, combination and send, as in a ring.
		{Move{Op0: Slot{Opcode: MoveImmediate, Addr: 0x40}, Op1: Slot{Opcode: MoveOnRecv, Src: 2, Tag: 7, Compressed: true},
			Res: Slot{Opcode: MoveImmediate}, Remote: true, Function: 1, Count: 5, ArithConfig: 4, Tag: 8, Comm: 0x72, Dst: 1},
			[]uint32{2 | 3<<3 | 2<<6 | 1<<9 | 1<<11 | 1<<13, 5, 4, 0x40, 0, 2, 7, 0, 0, 8, 0x72, 1}},
		{Move{Op0: Slot{Opcode: MoveStride, Stride: 100}, Res: Slot{Opcode: MoveStream}, Count: 1, Tag: 4},
			[]uint32{6 | 1<<6, 1, 0, 100, 4}},
	} {
		if got := c.move.Words(); !slices.Equal(got, c.words) {
			t.Errorf("%v is %#x, want %#x", c.move, got, c.words)
		}
		if got, err := ParseMove(c.words); err != nil || got != c.move {
			t.Errorf("%#x is %+v, %v", c.words, got, err)
		}
	}
}

// FuzzMove reads any words: what is a move has the same words again.
func FuzzMove(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x1a, 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var words []uint32
		for ; len(b) >= 4; b = b[4:] {
			words = append(words, binary.LittleEndian.Uint32(b))
		}
		if m, err := ParseMove(words); err == nil && !slices.Equal(m.Words(), words) {
			t.Errorf("%#x is %v, which is %#x", words, m, m.Words())
		}
	})
}
