package engine

// scatter gives each rank its block of the root's.
func (c *Call) scatter() {
	n := c.count()
	rendezvous := c.rendezvous(n)
	switch {
	case !c.isRoot() && rendezvous:
		c.offer(c.root(), c.res(), n)
		c.awaitDone(c.root(), c.res(), n, nil)
	case !c.isRoot():
		c.move(move{op1: c.from(c.root()), res: c.res(), count: n})
	case rendezvous:
		c.own(c.me())
		c.serve(func(r int) operand { return c.plus(c.op0(), r*n) })
	default:
		for r := range c.size() {
			if r == c.me() {
				c.own(r)
			} else {
				c.move(move{op0: c.plus(c.op0(), r*n), res: c.to(r), count: n})
			}
		}
	}
}

// own copies the block of the first operand that is the rank's own to the result.
func (c *Call) own(block int) {
	c.move(move{op0: c.plus(c.op0(), block*c.count()), res: c.res(), count: c.count()})
}
