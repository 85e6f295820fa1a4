package engine

import "github.com/chorus-comms/chorus/accl/abi"

// allreduce combines the elements of all ranks at all ranks.
func (c *Call) allreduce() {
	switch {
	case c.size() == 1:
		c.copy()
	case !c.rendezvous(c.count()):
		c.allreduceEager()
	default:
		c.reduceTo(0, c.op0(), c.res())
		c.Root = 0
		if c.size() > int(c.engine.exch.load(abi.BcastFlatMaxRanks)) {
			c.bcastTree(c.res())
		} else {
			c.bcastFlat(c.res())
		}
	}
}

// allreduceEager is a reduce-scatter and an all-gather along the ring, for one segment after the other.
func (c *Call) allreduceEager() {
	size := c.size()
	segment := c.count()
	if limit := int(c.engine.exch.load(abi.RXBufferSize)); limit > 0 {
		segment = max(size, limit/c.path.size(c.to(0).compressed)/size*size)
	}
	src, dst := c.op0(), c.res()
	for at := 0; at < c.count() && c.ok(); at += segment {
		n := min(segment, c.count()-at)
		bulk := (n + size - 1) / size
		count := func(block int) int { return min(bulk, max(0, n-block*bulk)) }
		c.ringReduce(func(b int) operand { return c.plus(src, at+b*bulk) }, count, c.plus(dst, at+c.me()*bulk))
		c.ringGather(func(d int) operand { return c.plus(dst, at+c.after(-d)*bulk) },
			func(d int) int { return count(c.after(-d)) })
	}
}
