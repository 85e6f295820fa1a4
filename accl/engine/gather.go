package engine

import "github.com/chorus-comms/chorus/accl/abi"

// gather collects a block of each rank at the root.
func (c *Call) gather() {
	if !c.rendezvous(c.count()) {
		c.gatherEager()
		return
	}
	n := c.count()
	if !c.isRoot() {
		if a := c.awaitOffer(c.root(), nil, nil); a != nil {
			c.write(move{op0: c.op0(), count: n}, a)
		}
		return
	}
	block := func(r int) operand { return c.plus(c.res(), r*n) }
	c.move(move{op0: c.op0(), res: block(c.me()), count: n})
	fan := c.others()
	if n*c.path.size(false) > int(c.engine.exch.load(abi.GatherFlatMaxCount)) {
		fan = max(1, min(fan, int(c.engine.exch.load(abi.GatherFlatMaxFanIn))))
	}
	for i := 0; i < c.others()+fan && c.ok(); i++ {
		if i >= fan {
			r := c.other(i - fan)
			c.awaitDone(r, block(r), n, nil)
		}
		if i < c.others() {
			r := c.other(i)
			c.offer(r, block(r), n)
		}
	}
}

// gatherEager passes the blocks along the ring to the root: each rank sends its own, then those behind it.
func (c *Call) gatherEager() {
	n, size := c.count(), c.size()
	if c.isRoot() {
		c.move(move{op0: c.op0(), res: c.plus(c.res(), c.me()*n), count: n})
		for i := 1; i < size; i++ {
			c.move(move{op1: c.from(c.after(-1)), res: c.plus(c.res(), c.after(-i)*n), count: n})
		}
		return
	}
	c.move(move{op0: c.op0(), res: c.to(c.after(1)), count: n})
	behind := (c.me() - c.root() + size) % size // the root is the ring's end
	for range behind - 1 {
		c.move(move{op1: c.from(c.after(-1)), res: c.to(c.after(1)), count: n})
	}
}
