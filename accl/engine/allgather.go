package engine

// allgather collects a block of each rank at all ranks, which pass them along a ring.
func (c *Call) allgather() {
	n := c.count()
	block := func(distance int) operand { return c.plus(c.res(), c.after(-distance)*n) }
	c.move(move{op0: c.op0(), res: block(0), count: n})
	c.ringGather(block, func(int) int { return n })
}

// ringGather passes blocks along the ring, each rank first its own, which is where it belongs. block and count are of
// the rank so far behind this one.
func (c *Call) ringGather(block func(distance int) operand, count func(distance int) int) {
	if c.size() == 1 {
		return
	}
	if !c.rendezvous(c.count()) {
		for i := 1; i < c.size(); i++ {
			c.move(move{op0: block(i - 1), res: c.to(c.after(1)), count: count(i - 1)})
			c.move(move{op1: c.from(c.after(-1)), res: block(i), count: count(i)})
		}
		return
	}
	for i := 1; i < c.size(); i++ { // the ranks before may write all of them, as they come
		c.offer(c.after(-1), block(i), count(i))
	}
	for i := 1; i < c.size(); i++ {
		if a := c.awaitOffer(c.after(1), nil, nil); a != nil {
			c.write(move{op0: block(i - 1), count: count(i - 1)}, a)
		}
		c.awaitDone(c.after(-1), block(i), count(i), nil)
	}
}
