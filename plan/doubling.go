package plan

import "math/bits"

// Recursive doubling exchanges everything known so far with a partner at
// distance 1, 2, 4, ...: the fewest messages one after the other
// (Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", 2005).

func init() {
	builtin(Algorithm{Name: "doubling", Collective: AllReduce, Doc: "recursive doubling; fewest messages in a row",
		Tags: []string{"small"}, Cost: costDoublingAllReduce},
		func(b *Builder) { b.doublingAllReduce(b.world(), b.Count, b.In(0), b.Out(0)) })
	builtin(Algorithm{Name: "doubling", Collective: AllGather, Doc: "recursive doubling; fewest messages in a row",
		Tags: []string{"small"}, Cost: costDoublingAllGather},
		func(b *Builder) { b.doublingAllGather() })
}

// folding turns any group into a power of two: the first 2*extra members form
// pairs, of which the odd one speaks for both.
type folding struct {
	core  int // largest power of two that is at most the group's size
	extra int // members that are spoken for
}

func fold(n int) folding {
	core := 1 << (bits.Len(uint(n)) - 1)
	return folding{core, n - core}
}

// role returns the partner of a member that belongs to a pair (else -1), whether
// the member is in the core, and its number there.
func (f folding) role(i int) (partner int, inCore bool, core int) {
	switch {
	case i >= 2*f.extra:
		return -1, true, i - f.extra
	case i%2 == 0:
		return i + 1, false, 0
	}
	return i - 1, true, i / 2
}

// member returns the group member that core number c is.
func (f folding) member(c int) int {
	if c < f.extra {
		return 2*c + 1
	}
	return c + f.extra
}

// first returns the first member for which core number c or a higher one speaks.
func (f folding) first(c int) int {
	if c < f.extra {
		return 2 * c
	}
	return c + f.extra
}

// doublingAllReduce reduces n elements at src of every member into dst of every
// member. Both partners of an exchange compute the same tree, since ⊕ commutes
// to the bit. src and dst may be the same place; Tmp holds n elements.
func (b *Builder) doublingAllReduce(g group, n int, src, dst Ref) {
	f := fold(g.n)
	partner, inCore, me := f.role(g.me)
	if !inCore {
		b.Send(g.rank(partner), n, src)
		b.Wait()
		b.Recv(g.rank(partner), n, dst)
		b.Wait()
		return
	}
	// A buffer can't be written while it's being sent. So the sum alternates between dst and Tmp,
	// and begins in the one from which it ends in dst.
	left := bits.Len(uint(f.core)) - 1
	cur, tmp := src, b.Tmp(0)
	if partner >= 0 {
		to := dst // nothing is being sent: it may be src itself
		if left%2 == 1 {
			to = tmp
		}
		b.RecvReduce(g.rank(partner), n, cur, to, false)
		b.Wait()
		cur = to
	}
	for mask := 1; mask < f.core; mask <<= 1 {
		peer := g.rank(f.member(me ^ mask))
		left--
		final := left == 0
		to := dst
		if left%2 == 1 {
			to = tmp
		}
		b.eachPiece(n, func(o, k int) { b.Send(peer, k, cur.Plus(o)) })
		if b.home(to) == b.home(cur) { // only in place, before the first sum
			b.eachPiece(n, func(o, k int) { b.Recv(peer, k, tmp.Plus(o)) })
			b.Wait()
			b.Fold(n, final, []Ref{cur, tmp}, dst)
			to = dst
		} else {
			b.eachPiece(n, func(o, k int) { b.RecvReduce(peer, k, cur.Plus(o), to.Plus(o), final) })
			b.Wait()
		}
		cur = to
	}
	if partner >= 0 {
		b.Send(g.rank(partner), n, dst)
		b.Wait()
	}
}

func (b *Builder) doublingAllGather() {
	g, l := b.world(), b.layout()
	f := fold(g.n)
	partner, inCore, me := f.role(g.me)
	if !inCore {
		b.Send(partner, l.size(g.me), b.In(0))
		b.Copy(l.size(g.me), b.In(0), b.Out(l.off(g.me)))
		b.Wait()
		// Everything but this rank's own block comes back.
		b.Recv(partner, l.span(0, g.me), b.Out(0))
		b.Recv(partner, l.span(g.me+1, g.n), b.Out(l.off(g.me+1)))
		b.Wait()
		return
	}
	if partner >= 0 {
		b.Recv(partner, l.size(partner), b.Out(l.off(partner)))
	}
	b.Copy(l.size(g.me), b.In(0), b.Out(l.off(g.me)))
	b.Wait()
	for mask := 1; mask < f.core; mask <<= 1 {
		peer := f.member(me ^ mask)
		mine, theirs := me&^(mask-1), (me^mask)&^(mask-1)
		lo, hi := f.first(mine), f.first(mine+mask)
		b.Send(peer, l.span(lo, hi), b.Out(l.off(lo)))
		lo, hi = f.first(theirs), f.first(theirs+mask)
		b.Recv(peer, l.span(lo, hi), b.Out(l.off(lo)))
		b.Wait()
	}
	if partner >= 0 {
		b.Send(partner, l.span(0, partner), b.Out(0))
		b.Send(partner, l.span(partner+1, g.n), b.Out(l.off(partner+1)))
		b.Wait()
	}
}
