package engine

// alltoall gives block i of each rank to rank i: by rendezvous where that can be, however few elements they have.
func (c *Call) alltoall() {
	n, size := c.count(), c.size()
	out := func(r int) operand { return c.plus(c.op0(), r*n) }
	in := func(r int) operand { return c.plus(c.res(), r*n) }
	c.move(move{op0: out(c.me()), res: in(c.me()), count: n})
	if !c.canRendezvous() {
		for i := 1; i < size; i++ {
			c.move(move{op0: out(c.after(i)), res: c.to(c.after(i)), count: n})
		}
		for i := 1; i < size; i++ {
			c.move(move{op1: c.from(c.after(-i)), res: in(c.after(-i)), count: n})
		}
		return
	}
	for i := range c.others() {
		c.offer(c.other(i), in(c.other(i)), n)
	}
	c.serve(out)
	for i := range c.others() {
		c.awaitDone(c.other(i), in(c.other(i)), n, nil)
	}
}
