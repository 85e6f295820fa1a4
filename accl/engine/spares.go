package engine

import (
	"sync/atomic"

	"github.com/chorus-comms/chorus/accl/abi"
)

// spares are the memory in which partial results of reductions meet. The driver gives an engine one set, of buffers of
// maxRendezvous bytes.
type spares struct{ taken atomic.Bool }

// takeSpares returns n buffers of so many bytes, and what gives them back: spare ones, or others where another call has
// them or they are too small.
func (c *Call) takeSpares(n, bytes int) (s [abi.NumSpares]operand, free func()) {
	e := c.engine
	if bytes <= c.spareBytes() && e.spares.taken.CompareAndSwap(false, true) {
		for i := range n {
			at := uint32(abi.SpareBuffers + 8*i)
			s[i] = operand{opcode: opImmediate, addr: uint64(e.exch.load(at)) | uint64(e.exch.load(at+4))<<32}
		}
		return s, func() { e.spares.taken.Store(false) }
	}
	var frees [abi.NumSpares]func()
	for i := range n {
		s[i], frees[i] = c.memory(bytes)
	}
	return s, func() {
		for _, f := range frees[:n] {
			f()
		}
	}
}

func (c *Call) spareBytes() int { return int(c.engine.maxRendezvous.Load()) }

// memory returns memory of the engine, until it's freed.
func (c *Call) memory(bytes int) (o operand, free func()) {
	m := &c.engine.Memory
	o = operand{opcode: opImmediate, addr: m.Map(Alloc(bytes), false)}
	return o, func() { m.Unmap(o.addr, false) }
}

// reaches reports whether an operand has so many elements; if not, the call fails.
func (c *Call) reaches(o operand, n int) bool {
	_, done := c.fetch(o, 0, n)
	done()
	return c.ok()
}

// piece returns how many elements fit each of so many slots of a spare buffer; the call fails if none does.
func (c *Call) piece(slots int) int {
	n := c.spareBytes() / slots / c.path.size(false)
	if n == 0 {
		c.fail(abi.ReceiveSpareBufferID)
		return max(1, c.count())
	}
	const line = 64
	if whole := n &^ (line - 1); whole > 0 {
		n = whole
	}
	return n
}
