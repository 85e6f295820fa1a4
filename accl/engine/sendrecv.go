package engine

import "github.com/chorus-comms/chorus/accl/abi"

// send sends elements to a rank: in eager messages, or, when the rank has said where, straight into its memory. With
// ResStream they go to the stream of the rank's kernel whose id is the tag.
func (c *Call) send() {
	dst := c.root()
	if c.rendezvous(c.count()) {
		if a := c.awaitOffer(dst, nil, func() { c.controller.park(c) }); a != nil {
			c.write(move{op0: c.op0(), count: c.count()}, a)
		}
		return
	}
	to := c.to(dst)
	to.put = c.Stream&abi.ResStream != 0
	m := move{op0: c.op0(), res: to, count: c.count()}
	if to.put && c.direct() { // a stream needs no RX buffers, but ACCL's engines cut what goes there like the rest
		c.move(m)
		return
	}
	c.inSegments(m)
}

// recv receives what send sends.
func (c *Call) recv() {
	src := c.root()
	if c.rendezvous(c.count()) {
		c.offer(src, c.res(), c.count())
		c.awaitDone(src, c.res(), c.count(), func() { c.controller.park(c) })
		return
	}
	c.inSegments(move{op1: c.from(src), res: c.res(), count: c.count()})
}
