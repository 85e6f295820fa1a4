package engine

import (
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/kern"
)

// allreduce combines the elements of all ranks at all ranks.
func (c *Call) allreduce() {
	switch {
	case c.size() == 1:
		c.copy()
	case !c.rendezvous(c.count()):
		c.allreduceEager()
	case c.direct():
		if net, ok := c.engine.cfg.Network.(Reacher); ok {
			c.allreduceReaching(net)
		} else {
			c.allreduceDirect()
		}
	default:
		c.reduceTo(0, c.op0(), c.res(), c.count())
		c.Root = 0
		if c.size() > int(c.engine.exch.load(abi.BcastFlatMaxRanks)) {
			c.bcastTree(c.res())
		} else {
			c.bcastFlat(c.res())
		}
	}
}

// allreduceDirect has each rank combine a block: the others write theirs into its spare buffer, and it writes the
// result into their memory, all at once. It goes in segments whose blocks fit the buffer.
func (c *Call) allreduceDirect() {
	size, me := c.size(), c.me()
	most := c.piece(size - 1)
	if !c.ok() {
		return
	}
	spares, free := c.takeSpares(1, most*(size-1)*c.path.size(false))
	defer free()
	for at := 0; at < c.count() && c.ok(); at += most * size {
		n := min(most*size, c.count()-at)
		bulk := (n + size - 1) / size
		count := func(r int) int { return min(bulk, max(0, n-r*bulk)) }
		src := func(r int) operand { return c.plus(c.op0(), at+r*bulk) }
		dst := func(r int) operand { return c.plus(c.res(), at+r*bulk) }
		slot := func(r int) operand { return c.plus(spares[0], (r+size-me-1)%size*most) }
		each := func(blockOf func(r int) int, do func(r int)) { // for the other ranks, from the next one on
			for i := 1; i < size; i++ {
				if r := c.after(i); count(blockOf(r)) > 0 {
					do(r)
				}
			}
		}
		own, theirs := func(int) int { return me }, func(r int) int { return r }
		write := func(o operand, n int) func(r int) {
			return func(r int) {
				if a := c.awaitOffer(r, nil, nil); a != nil {
					c.write(move{op0: o, count: n}, a)
				}
			}
		}
		each(own, func(r int) { c.offer(r, slot(r), count(me)) })
		each(theirs, func(r int) { c.offer(r, dst(r), count(r)) })
		each(theirs, func(r int) { write(src(r), count(r))(r) })
		acc := src(me)
		each(own, func(r int) {
			c.awaitDone(r, slot(r), count(me), nil)
			c.move(move{op0: acc, op1: slot(r), res: dst(me), count: count(me)})
			acc = dst(me)
		})
		each(own, write(dst(me), count(me)))
		each(theirs, func(r int) { c.awaitDone(r, dst(r), count(r), nil) })
	}
}

// allreduceReaching has each rank combine a block of all ranks' memory into that of all, where it lies: one pass over
// it, in the order of the ranks.
func (c *Call) allreduceReaching(net Reacher) {
	const line = 64
	size, me := c.size(), c.me()
	bulk := ((c.count()+size-1)/size + line - 1) &^ (line - 1)
	count := func(r int) int { return min(bulk, max(0, c.count()-r*bulk)) }
	src := func(r int) operand { return c.plus(c.op0(), r*bulk) }
	dst := func(r int) operand { return c.plus(c.res(), r*bulk) }
	for i := 1; i < size; i++ {
		if r := c.after(i); count(r) > 0 {
			c.offer(r, src(r), count(r))
			c.offer(r, dst(r), count(r))
		}
	}
	if n := count(me); n > 0 {
		c.combineInPlace(net, src(me), dst(me), n)
	}
	for i := 1; i < size; i++ {
		if r := c.after(i); count(r) > 0 {
			c.awaitDone(r, dst(r), count(r), nil)
		}
	}
}

// combineInPlace combines elements of this rank and those that the others offer, into those that they offer next, and
// tells them.
func (c *Call) combineInPlace(net Reacher, src, dst operand, n int) {
	var bad abi.Status // which the others must hear of, too
	op, t, ok := c.path.function(c.Function)
	if !ok {
		bad = abi.Arith
	}
	bytes := n * c.path.size(false)
	lists := [2][]unsafe.Pointer{make([]unsafe.Pointer, c.size()), make([]unsafe.Pointer, c.size())}
	results := make([]*arrival, c.size()) // where they are to be
	for r := range c.size() {
		for i, o := range []operand{src, dst} {
			if r != c.me() {
				a := c.awaitOffer(r, nil, nil)
				if a == nil {
					return
				}
				results[r] = a
				if int(a.Count) != n {
					bad |= abi.DMANotExpectedBTT
				}
				o.addr, o.host = a.Addr, a.Host
			}
			b, release := net.Reach(c.comm.Ranks[r].Session, o.addr, bytes, o.host)
			defer release()
			if b == nil {
				bad |= abi.DMADecode
				continue
			}
			lists[i][r] = unsafe.Pointer(unsafe.SliceData(b))
		}
	}
	if c.fail(bad); bad == 0 {
		kern.Reduce(op, t, lists[1], lists[0], n)
	}
	for r, a := range results {
		if a != nil {
			c.wrote(r, a, n)
		}
	}
}

// allreduceEager is a reduce-scatter and an all-gather along the ring, for one segment after the other. A rank begins
// with the chunk of its number, and ends the first half with the one behind it.
func (c *Call) allreduceEager() {
	size := c.size()
	segment := max(size, c.segment()/size*size) // whole chunks
	own := c.after(1)
	src, dst := c.op0(), c.res()
	for at := 0; at < c.count() && c.ok(); at += segment {
		n := min(segment, c.count()-at)
		bulk := (n + size - 1) / size
		count := func(block int) int { return min(bulk, max(0, n-block*bulk)) }
		sum := func(b int) operand { return c.plus(dst, at+b*bulk) }
		c.ringReduce(own, func(b int) operand { return c.plus(src, at+b*bulk) }, count, sum(own))
		c.ringGather(sum(own), own, sum, count)
	}
}
