package engine

// reduceScatter combines the blocks of all ranks: each gets the one of its number.
func (c *Call) reduceScatter() {
	n := c.count()
	if c.rendezvous(n) {
		for r := range c.size() {
			c.reduceTo(r, c.plus(c.op0(), r*n), c.res())
		}
		return
	}
	c.ringReduce(func(block int) operand { return c.plus(c.op0(), block*n) }, func(int) int { return n }, c.res())
}

// ringReduce passes partial sums of the blocks along the ring by eager messages: each ends at the rank of its number,
// in res. Blocks may be empty.
func (c *Call) ringReduce(block func(int) operand, count func(block int) int, res operand) {
	if c.size() == 1 {
		c.move(move{op0: block(0), res: res, count: count(0)})
		return
	}
	next, last := c.to(c.after(1)), c.from(c.after(-1))
	first := c.after(-1)
	c.move(move{op0: block(first), res: next, count: count(first)})
	for i := 2; i < c.size(); i++ {
		b := c.after(-i)
		c.move(move{op0: block(b), op1: last, res: next, count: count(b)})
	}
	c.move(move{op0: block(c.me()), op1: last, res: res, count: count(c.me())})
}
