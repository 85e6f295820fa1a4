package engine

// allgather collects a block of each rank at all ranks, which pass them along a ring.
func (c *Call) allgather() {
	n := c.count()
	block := func(r int) operand { return c.plus(c.res(), r*n) }
	c.move(move{op0: c.op0(), res: block(c.me()), count: n})
	if c.rendezvous(n) {
		c.ringWrite(block)
		return
	}
	c.ringGather(c.op0(), c.me(), block, func(int) int { return n })
}

// ringGather passes blocks along the ring by eager messages: each rank sends the one that is its own, of which first is
// a copy, and then those that come, which are the ones before it.
func (c *Call) ringGather(first operand, own int, block func(int) operand, count func(block int) int) {
	size := c.size()
	next, last := c.to(c.after(1)), c.from(c.after(-1))
	for i := 1; i < size; i++ {
		sent, came := (own-i+1+size)%size, (own-i+size)%size
		c.move(move{op0: first, res: next, count: count(sent)})
		first = block(came)
		c.move(move{op1: last, res: first, count: count(came)})
	}
}

// ringWrite passes blocks along the ring by rendezvous: the rank before writes all of them, once it knows where the
// first one lies.
func (c *Call) ringWrite(block func(int) operand) {
	if c.size() == 1 {
		return
	}
	n, last := c.count(), c.after(-1)
	c.offer(last, block(0), n)
	offer := c.awaitOffer(c.after(1), nil, nil)
	if offer == nil {
		return
	}
	for i := range c.others() {
		at := *offer
		at.Addr += uint64(c.after(-i) * n * c.path.size(false))
		c.write(move{op0: block(c.after(-i)), count: n}, &at)
		c.awaitDone(last, block(c.after(-i-1)), n, nil)
	}
}
