package engine

// reduceScatter combines the blocks of all ranks: each gets the one of its number.
func (c *Call) reduceScatter() {
	n := c.count()
	switch {
	case !c.rendezvous(n):
		c.ringReduce(c.me(), func(block int) operand { return c.plus(c.op0(), block*n) }, func(int) int { return n }, c.res())
	case c.direct():
		for r := range c.size() {
			c.reduceTo(r, c.plus(c.op0(), r*n), c.res(), n)
		}
	default:
		c.reduceThenScatter()
	}
}

// reduceThenScatter combines all blocks at rank 0, in memory of its engine, and has that scatter the result.
func (c *Call) reduceThenScatter() {
	all := c.count() * c.size()
	if c.size() == 1 {
		c.copy()
		return
	}
	var sum operand
	if c.me() == 0 {
		if !c.reaches(c.op0(), all) {
			return
		}
		var free func()
		sum, free = c.memory(all * c.path.size(false))
		defer free()
	}
	c.reduceTo(0, c.op0(), sum, all)
	c.scatterRendezvous(0, sum)
}

// ringReduce passes partial sums of the blocks along the ring by eager messages: each rank begins with the block before
// its own, and ends with that, in res. Blocks may be empty.
func (c *Call) ringReduce(own int, block func(int) operand, count func(block int) int, res operand) {
	size := c.size()
	at := func(i int) int { return (own - i + size) % size }
	if size == 1 {
		c.move(move{op0: block(own), res: res, count: count(own)})
		return
	}
	next, last := c.to(c.after(1)), c.from(c.after(-1))
	c.move(move{op0: block(at(1)), res: next, count: count(at(1))})
	for i := 2; i < size; i++ {
		c.move(move{op0: block(at(i)), op1: last, res: next, count: count(at(i))})
	}
	c.move(move{op0: block(own), op1: last, res: res, count: count(own)})
}
