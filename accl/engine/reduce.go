package engine

import "github.com/chorus-comms/chorus/accl/abi"

// reduce combines the elements of all ranks at the root.
func (c *Call) reduce() {
	if !c.rendezvous(c.count()) {
		c.reduceEager()
		return
	}
	c.reduceTo(c.root(), c.op0(), c.res())
}

// reduceEager is a chain along the ring that ends at the root.
func (c *Call) reduceEager() {
	n := c.count()
	next, last := c.to(c.after(1)), c.from(c.after(-1))
	switch {
	case c.size() == 1:
		c.copy()
	case c.isRoot():
		c.move(move{op0: c.op0(), op1: last, res: c.res(), count: n})
	case c.after(-1) == c.root():
		c.move(move{op0: c.op0(), res: next, count: n})
	default:
		c.move(move{op0: c.op0(), op1: last, res: next, count: n})
	}
}

// reduceTo is a reduction by rendezvous: flat for few ranks or few bytes, else along a binomial tree.
func (c *Call) reduceTo(root int, src, dst operand) {
	e := c.engine
	bytes := uint64(c.count() * c.path.size(false))
	switch {
	case c.size() == 1:
		c.move(move{op0: src, res: dst, count: c.count()})
	case c.size() <= int(e.exch.load(abi.ReduceFlatMaxRanks)), bytes <= uint64(e.exch.load(abi.ReduceFlatMaxCount)):
		c.reduceFlat(root, src, dst)
	default:
		c.reduceTree(root, src, dst)
	}
}

// reduceFlat has all others write to a spare buffer of the root, in pieces that fit half of it. The root combines the
// pieces in the order of the ranks, while the next ones arrive in the other half.
func (c *Call) reduceFlat(root int, src, dst operand) {
	if c.me() != root {
		for at := 0; at < c.count() && c.ok(); {
			a := c.awaitOffer(root, nil, nil)
			if a == nil {
				return
			}
			n := min(int(a.Count), c.count()-at)
			c.write(move{op0: c.plus(src, at), count: n}, a)
			at += n
		}
		return
	}
	spares, free := c.takeSpares()
	defer free()
	others := c.size() - 1
	piece := c.piece(spares[0].bytes, 2*others)
	slot := func(k, i int) operand { return c.plus(spares[0].operand, ((k%2)*others+i)*piece) }
	rank := func(i int) int {
		if i < root {
			return i
		}
		return i + 1
	}
	length := func(k int) int { return min(piece, c.count()-k*piece) }
	offer := func(k int) {
		for i := range others {
			c.offer(rank(i), slot(k, i), length(k))
		}
	}
	if !c.ok() {
		return
	}
	offer(0)
	for k := 0; k*piece < c.count() && c.ok(); k++ {
		if (k+1)*piece < c.count() {
			offer(k + 1)
		}
		acc, out := c.plus(src, k*piece), c.plus(dst, k*piece)
		for i := range others {
			c.awaitDone(rank(i), slot(k, i), length(k), nil)
			c.move(move{op0: acc, op1: slot(k, i), res: out, count: length(k)})
			acc = out
		}
	}
}

// piece returns how many elements fit each of so many slots of a buffer; the call fails if none does.
func (c *Call) piece(bytes, slots int) int {
	n := bytes / slots / c.path.size(false)
	if n == 0 {
		c.fail(abi.ReceiveSpareBufferID)
		return max(1, c.count())
	}
	const line = 64
	if whole := n &^ (line - 1); whole > 0 {
		n = whole
	}
	return n
}

// reduceTree combines along a binomial tree, in pieces that fit a spare buffer: each rank combines what its children
// bring, in their order, and the last of them on its way to the parent.
func (c *Call) reduceTree(root int, src, dst operand) {
	n := c.size()
	me := (c.me() - root + n) % n
	var children []int
	parent := -1
	for d := 1; d < n; d <<= 1 {
		if me&d != 0 {
			parent = (me - d + root) % n
			break
		}
		if me+d < n {
			children = append(children, (me+d+root)%n)
		}
	}
	var spares [abi.NumSpares]spare
	bytes := int(c.engine.maxRendezvous.Load())
	if len(children) > 0 {
		var free func()
		spares, free = c.takeSpares()
		defer free()
	}
	piece := c.piece(bytes, 1)
	for at := 0; at < c.count() && c.ok(); at += piece {
		length := min(piece, c.count()-at)
		acc, out := c.plus(src, at), c.plus(dst, at)
		if parent >= 0 {
			out = spares[2].operand
		}
		for i, child := range children {
			c.offerAhead(children, i, &spares, length)
			in := spares[i%2].operand
			c.awaitDone(child, in, length, nil)
			m := move{op0: acc, op1: in, res: out, count: length}
			if parent >= 0 && i == len(children)-1 {
				c.toParent(parent, m)
			} else {
				c.move(m)
			}
			acc = out
		}
		if parent >= 0 && len(children) == 0 {
			c.toParent(parent, move{op0: acc, count: length})
		}
	}
}

// offerAhead tells the first child, and then always the next one, where it may write.
func (c *Call) offerAhead(children []int, i int, spares *[abi.NumSpares]spare, length int) {
	first := i + 1
	if i == 0 {
		first = 0
	}
	for k := first; k <= i+1 && k < len(children); k++ {
		c.offer(children[k], spares[k%2].operand, length)
	}
}

// toParent writes a move's result where the parent wants it.
func (c *Call) toParent(parent int, m move) {
	a := c.awaitOffer(parent, nil, nil)
	if a == nil {
		return
	}
	if int(a.Count) != m.count {
		c.fail(abi.ReceiveSpareBufferID) // the ranks' spare buffers differ
	}
	c.write(m, a)
}
