package engine

import "github.com/chorus-comms/chorus/accl/abi"

// reduce combines the elements of all ranks at the root.
func (c *Call) reduce() {
	if !c.rendezvous(c.count()) {
		c.reduceEager()
		return
	}
	c.reduceTo(c.root(), c.op0(), c.res(), c.count())
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
		c.inSegments(move{op0: c.op0(), res: next, count: n})
	default:
		c.move(move{op0: c.op0(), op1: last, res: next, count: n})
	}
}

// reduceTo is a reduction of n elements by rendezvous: flat for few ranks or few bytes, else along a binomial tree.
func (c *Call) reduceTo(root int, src, dst operand, n int) {
	e := c.engine
	bytes := n * c.path.size(false)
	flat := c.size() <= int(e.exch.load(abi.ReduceFlatMaxRanks)) || bytes <= int(e.exch.load(abi.ReduceFlatMaxCount))
	switch {
	case c.size() == 1:
		c.move(move{op0: src, res: dst, count: n})
	case flat && c.me() != root:
		c.writeOffered(root, src, n)
	case !c.direct() && 2*bytes > c.spareBytes() && !c.reaches(src, n): // before the engine takes memory for them
	case flat:
		c.reduceFlat(src, dst, n)
	default:
		c.reduceTree(root, src, dst, n)
	}
}

// writeOffered writes elements where a rank offers, which may be for some of them at a time.
func (c *Call) writeOffered(rank int, src operand, n int) {
	for at := 0; at < n && c.ok(); {
		a := c.awaitOffer(rank, nil, nil)
		if a == nil {
			return
		}
		m := min(int(a.Count), n-at)
		c.write(move{op0: c.plus(src, at), count: m}, a)
		at += m
	}
}

// reduceFlat is the root's part where all others write to slots of a spare buffer. It combines them in the order of the
// ranks, while others fill the next slots. ACCL's engines answer one offer with all that they have, so a slot holds
// that; in a world of Chorus's engines alone it's pieces, and the spare buffer has room for two of each rank.
func (c *Call) reduceFlat(src, dst operand, n int) {
	others, size := c.others(), c.path.size(false)
	slots, piece := min(others, max(2, c.spareBytes()/(n*size))), n
	if c.direct() {
		slots = 2 * others
		piece = min(n, c.piece(slots))
	}
	if !c.ok() {
		return
	}
	spares, free := c.takeSpares(1, slots*piece*size)
	defer free()
	slot := func(i int) operand { return c.plus(spares[0], i%slots*piece) }
	length := func(i int) int { return min(piece, n-i/others*piece) }
	offer := func(i int) { // to each rank in turn, for a piece after the other
		if i/others*piece < n {
			c.offer(c.other(i%others), slot(i), length(i))
		}
	}
	for i := range slots {
		offer(i)
	}
	for i := 0; i/others*piece < n && c.ok(); i++ {
		at := i / others * piece
		acc, out := c.plus(dst, at), c.plus(dst, at)
		if i%others == 0 {
			acc = c.plus(src, at)
		}
		c.awaitDone(c.other(i%others), slot(i), length(i), nil)
		c.move(move{op0: acc, op1: slot(i), res: out, count: length(i)})
		offer(i + slots)
	}
}

// reduceTree combines along a binomial tree: each rank combines what its children bring, in their order, and the last
// of them on its way to the parent. In a world of Chorus's engines alone it goes in pieces that fit a spare buffer.
func (c *Call) reduceTree(root int, src, dst operand, count int) {
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
	piece := count
	if c.direct() {
		piece = min(count, c.piece(1))
	}
	var spares [abi.NumSpares]operand
	if len(children) > 0 && c.ok() {
		var free func()
		spares, free = c.takeSpares(abi.NumSpares, piece*c.path.size(false))
		defer free()
	}
	for at := 0; at < count && c.ok(); at += piece {
		length := min(piece, count-at)
		acc, out := c.plus(src, at), c.plus(dst, at)
		if parent >= 0 {
			out = spares[2]
		}
		for i, child := range children {
			c.offerAhead(children, i, &spares, length)
			in := spares[i%2]
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
func (c *Call) offerAhead(children []int, i int, spares *[abi.NumSpares]operand, length int) {
	first := i + 1
	if i == 0 {
		first = 0
	}
	for k := first; k <= i+1 && k < len(children); k++ {
		c.offer(children[k], spares[k%2], length)
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
