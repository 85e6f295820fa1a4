package gloo

import (
	"encoding/binary"
	"fmt"
)

// opcode says what a frame is.
type opcode uint64

// The opcodes that PyTorch uses.
const (
	data      opcode = iota + 1 // a payload follows
	sendReady                   // its sender waits for recvReady
	recvReady                   // its sender takes a payload
)

// preambleBytes is the size of a preamble on the wire.
const preambleBytes = 48

// maxPayload bounds what a frame may be said to hold.
const maxPayload = 1 << 46

// preamble is the head of a frame.
type preamble struct {
	op     opcode
	slot   uint64
	length uint64 // bytes of the payload, or of the one that is announced, or of the room for it
}

// append appends the preamble as it's on the wire.
func (p preamble) append(b []byte) []byte {
	n := uint64(preambleBytes)
	if p.op == data {
		n += p.length
	}
	for _, word := range [...]uint64{n, uint64(p.op), p.slot, 0, p.length, 0} {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return b
}

// parsePreamble reads a preamble.
func parsePreamble(b *[preambleBytes]byte) (preamble, error) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	p, follows := preamble{op: opcode(word(1)), slot: word(2), length: word(4)}, uint64(0)
	switch p.op {
	case data:
		if follows = p.length; p.length > maxPayload {
			return p, fmt.Errorf("a frame of %d bytes", p.length)
		}
	case sendReady, recvReady:
	default:
		return p, fmt.Errorf("a frame with opcode %d", p.op)
	}
	if word(0) != preambleBytes+follows || word(3) != 0 || word(5) != 0 {
		return p, fmt.Errorf("a frame that contradicts itself: %d bytes, %d of them payload, at %d and %d",
			word(0), p.length, word(3), word(5))
	}
	return p, nil
}
