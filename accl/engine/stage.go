package engine

import "github.com/chorus-comms/chorus/accl/abi"

// stage replaces stream operands by memory of the engine, for a collective that uses blocks in another order than a
// stream's, or more than once. Call end to copy the result into its stream.
func (c *Call) stage() (end func()) {
	ins, outs := 1, 1
	switch c.Scenario {
	case abi.Bcast: // both in one place
		if c.isRoot() {
			outs = 0
		} else {
			ins = 0
		}
	case abi.Scatter:
		if ins = 0; c.isRoot() {
			ins = c.size()
		}
	case abi.Gather:
		if outs = 0; c.isRoot() {
			outs = c.size()
		}
	case abi.Allgather:
		outs = c.size()
	case abi.ReduceScatter:
		ins = c.size()
	case abi.Alltoall:
		ins, outs = c.size(), c.size()
	case abi.Allreduce:
	default: // the others take streams as they come
		return nothing
	}
	from, to := c.op0(), c.res()
	c.Stream = 0
	place := func(i, blocks int, compressed bool) (operand, int) {
		n := blocks * c.count()
		c.Addr[i] = c.engine.Memory.Map(Alloc(n*c.path.size(compressed)), false)
		return operand{opcode: opImmediate, addr: c.Addr[i], compressed: compressed}, n
	}
	result := 2
	if c.Scenario == abi.Bcast {
		result, to.compressed = 0, from.compressed
	}
	var mapped []uint64
	if from.opcode == opStream && ins > 0 {
		c.Host &^= abi.Op0Host
		in, n := place(0, ins, from.compressed)
		mapped = append(mapped, in.addr)
		c.move(move{op0: from, res: in, count: n})
	}
	var out operand
	n := 0
	if to.opcode == opStream && outs > 0 {
		if c.Host &^= abi.ResHost; result == 0 {
			c.Host &^= abi.Op0Host
		}
		out, n = place(result, outs, to.compressed)
		mapped = append(mapped, out.addr)
	}
	return func() {
		if n > 0 {
			c.move(move{op0: out, res: to, count: n})
		}
		for _, addr := range mapped {
			c.engine.Memory.Unmap(addr, false)
		}
	}
}
