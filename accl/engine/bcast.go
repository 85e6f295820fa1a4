package engine

import (
	"math/bits"

	"github.com/chorus-comms/chorus/accl/abi"
)

// bcast gives the root's elements to all, where the root has them.
func (c *Call) bcast() {
	switch {
	case !c.rendezvous(c.count()):
		c.bcastEager()
	case c.size() > int(c.engine.exch.load(abi.BcastFlatMaxRanks)):
		c.bcastTree(c.op0())
	default:
		c.bcastFlat(c.op0())
	}
}

// bcastEager has the root send a segment to all, then the next.
func (c *Call) bcastEager() {
	if !c.isRoot() {
		c.inSegments(move{op1: c.from(c.root()), res: c.op0(), count: c.count()})
		return
	}
	step := c.segment()
	for at := 0; at < c.count() && c.ok(); at += step {
		for r := range c.size() {
			if r != c.me() {
				c.move(move{op0: c.plus(c.op0(), at), res: c.to(r), count: min(step, c.count()-at)})
			}
		}
	}
}

// bcastFlat has the root write to the others, in the order in which they say where.
func (c *Call) bcastFlat(o operand) {
	if !c.isRoot() {
		c.offer(c.root(), o, c.count())
		c.awaitDone(c.root(), o, c.count(), nil)
		return
	}
	c.serve(func(int) operand { return o })
}

// serve writes an operand for each other rank, in the order in which they say where.
func (c *Call) serve(of func(rank int) operand) {
	served := make([]bool, c.size())
	served[c.me()] = true
	for range c.size() - 1 {
		a := c.awaitOffer(-1, func(r int) bool { return !served[r] }, nil)
		if a == nil {
			return
		}
		served[a.Src] = true
		c.write(move{op0: of(int(a.Src)), count: c.count()}, a)
	}
}

// bcastTree has the ranks with the elements pass them on: each step doubles their number.
func (c *Call) bcastTree(o operand) {
	n := c.size()
	me := c.after(-c.root()) // the root is 0
	have := me == 0
	for d := 1 << (bits.Len(uint(n-1)) - 1); d > 0 && c.ok(); d >>= 1 {
		switch {
		case have && me%(2*d) == 0 && me+d < n:
			child := (me + d + c.root()) % n
			if a := c.awaitOffer(child, nil, nil); a != nil {
				c.write(move{op0: o, count: c.count()}, a)
			}
		case !have && me%(2*d) == d:
			parent := (me - d + c.root()) % n
			c.offer(parent, o, c.count())
			c.awaitDone(parent, o, c.count(), nil)
			have = true
		}
	}
}
