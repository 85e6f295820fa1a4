package engine

// scatter gives each rank its block of the root's.
func (c *Call) scatter() {
	n := c.count()
	switch {
	case c.rendezvous(n):
		c.scatterRendezvous(c.root(), c.op0())
	case !c.isRoot():
		c.move(move{op1: c.from(c.root()), res: c.res(), count: n})
	default:
		for r := range c.size() {
			m := move{op0: c.plus(c.op0(), r*n), res: c.to(r), count: n}
			if r == c.me() {
				m.res = c.res()
			}
			c.move(m)
		}
	}
}

// scatterRendezvous has the root write the blocks of an operand, in the order in which the others say where.
func (c *Call) scatterRendezvous(root int, src operand) {
	n := c.count()
	if c.me() != root {
		c.offer(root, c.res(), n)
		c.awaitDone(root, c.res(), n, nil)
		return
	}
	block := func(r int) operand { return c.plus(src, r*n) }
	c.move(move{op0: block(root), res: c.res(), count: n})
	c.serve(block)
}
