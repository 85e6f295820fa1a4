package engine

import "github.com/chorus-comms/chorus/accl/abi"

// notify sends a notification of a rendezvous.
func (c *Call) notify(rank int, kind abi.MsgType, count uint32, o operand) {
	if !c.ok() {
		return
	}
	session := c.comm.Ranks[rank].Session
	h := abi.Header{Count: count, Tag: c.Tag, Src: uint32(c.me()), Dst: uint16(session), MsgType: kind, Host: o.host,
		Addr: o.addr, CommID: c.comm.id, Scenario: purpose(c.Scenario)}
	if kind == abi.RendezvousDone { // a write has the number of the next eager message, which it doesn't take
		h.Seq = c.engine.exch.load(c.comm.seq(rank, abi.OutboundWord))
	}
	if err := c.engine.cfg.Network.Send(session, &h, nil); err != nil {
		c.fail(statusOf(err))
	}
}

// offer tells a rank where it may write so many elements.
func (c *Call) offer(rank int, o operand, count int) {
	c.notify(rank, abi.RendezvousAddress, uint32(count), o)
}

// awaitOffer waits for a rank's, or, if rank is negative, for the first of those of some ranks.
func (c *Call) awaitOffer(rank int, from func(int) bool, before func()) *arrival {
	return c.await(want{comm: c.comm, kind: abi.RendezvousAddress, src: rank, from: from, tag: c.Tag,
		purpose: purpose(c.Scenario)}, before)
}

// write answers an offer: the move's result, which is for the rank, goes where that wants it.
func (c *Call) write(m move, offer *arrival) {
	if !c.ok() {
		return
	}
	rank := int(offer.Src)
	m.res = operand{opcode: opWrite, addr: offer.Addr, host: offer.Host, rank: rank}
	if uint64(m.count) != uint64(offer.Count) {
		c.fail(abi.DMANotExpectedBTT)
	}
	c.move(m)
	c.wrote(rank, offer, m.count)
}

// wrote tells a rank that so many elements are where it has offered it; none, if this call has failed.
func (c *Call) wrote(rank int, offer *arrival, count int) {
	bad := c.status
	c.status = 0 // the rank that waits for the data must learn that it doesn't come
	bytes := uint32(count * c.path.size(false))
	if bad&^abi.DMANotExpectedBTT != 0 {
		bytes = 0
	}
	c.notify(rank, abi.RendezvousDone, bytes, operand{addr: offer.Addr, host: offer.Host})
	c.fail(bad)
}

// awaitDone waits until a rank has written so many elements where this one has offered it.
func (c *Call) awaitDone(rank int, o operand, count int, before func()) {
	a := c.await(want{comm: c.comm, kind: abi.RendezvousDone, src: rank, tag: c.Tag, addr: o.addr,
		purpose: purpose(c.Scenario)}, before)
	if a != nil && a.Count != uint32(count*c.path.size(false)) {
		c.fail(abi.DMANotExpectedBTT)
	}
}
