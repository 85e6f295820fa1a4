package engine

// alltoall gives block i of each rank to rank i.
func (c *Call) alltoall() {
	n, size := c.count(), c.size()
	out := func(r int) operand { return c.plus(c.op0(), r*n) }
	in := func(r int) operand { return c.plus(c.res(), r*n) }
	if !c.rendezvous(n) {
		for i := 1; i < size; i++ {
			c.move(move{op0: out(c.after(i)), res: c.to(c.after(i)), count: n})
		}
	} else {
		for i := 1; i < size; i++ {
			c.offer(c.after(-i), in(c.after(-i)), n)
		}
	}
	c.move(move{op0: out(c.me()), res: in(c.me()), count: n})
	if !c.rendezvous(n) {
		for i := 1; i < size; i++ {
			c.move(move{op1: c.from(c.after(-i)), res: in(c.after(-i)), count: n})
		}
		return
	}
	c.serve(out)
	for i := 1; i < size; i++ {
		c.awaitDone(c.after(-i), in(c.after(-i)), n, nil)
	}
}
