package plan

import "math/bits"

// Recursive halving reduces by exchanging half of what is left with a partner at distance n/2, n/4,
// ... Followed by recursive doubling it's Rabenseifner's all-reduce: few messages and few bytes
// (Thakur, Rabenseifner and Gropp, 2005).

func init() {
	builtin(Algorithm{Name: "rabenseifner", Collective: AllReduce,
		Doc: "recursive halving, then doubling; few messages and few bytes", Tags: []string{"large"}, Cost: costRabenseifner},
		(*Builder).rabenseifner)
	builtin(Algorithm{Name: "halving", Collective: ReduceScatter, Doc: "recursive halving", Tags: []string{"small"},
		Cost: costHalving},
		(*Builder).halvingReduceScatter)
}

// halve reduces a vector at src over the core of a folding. The part of core member me ends in acc,
// a vector of the same length. part(c) is where the elements of core members c and later start. src
// and acc may be the same place.
func (b *Builder) halve(f folding, me int, src, acc Ref, part func(c int) int) {
	for mask := f.core / 2; mask > 0; mask /= 2 {
		peer := f.member(me ^ mask)
		keep, give := me&^(mask-1), (me^mask)&^(mask-1)
		off, end := part(give), part(give+mask)
		b.eachPiece(end-off, func(o, k int) { b.Send(peer, k, src.Plus(off+o)) })
		off, end = part(keep), part(keep+mask)
		b.eachPiece(end-off, func(o, k int) { b.RecvReduce(peer, k, src.Plus(off+o), acc.Plus(off+o), mask == 1) })
		b.Wait()
		src = acc
	}
}

func (b *Builder) rabenseifner() {
	f := fold(b.World)
	partner, inCore, me := f.role(b.Rank)
	if !inCore {
		b.eachPiece(b.Count, func(o, k int) { b.Send(partner, k, b.In(o)) })
		b.Wait()
		b.eachPiece(b.Count, func(o, k int) { b.Recv(partner, k, b.Out(o)) })
		b.Wait()
		return
	}
	src, acc := b.In(0), b.Out(0)
	if partner >= 0 {
		b.eachPiece(b.Count, func(o, k int) { b.RecvReduce(partner, k, src.Plus(o), acc.Plus(o), false) })
		b.Wait()
		src = acc
	}
	part := func(c int) int {
		off, _ := cut(b.Count, f.core, c, b.perLine())
		return off
	}
	b.halve(f, me, src, acc, part)
	for mask := 1; mask < f.core; mask *= 2 {
		peer := f.member(me ^ mask)
		mine, theirs := me&^(mask-1), (me^mask)&^(mask-1)
		off, end := part(mine), part(mine+mask)
		b.eachPiece(end-off, func(o, k int) { b.Send(peer, k, acc.Plus(off+o)) })
		off, end = part(theirs), part(theirs+mask)
		b.eachPiece(end-off, func(o, k int) { b.Recv(peer, k, acc.Plus(off+o)) })
		b.Wait()
	}
	if partner >= 0 {
		b.eachPiece(b.Count, func(o, k int) { b.Send(partner, k, acc.Plus(o)) })
		b.Wait()
	}
}

// halvingReduceScatter sums in Tmp. A core member that speaks for a pair ends
// with the blocks of both and sends the other its own.
func (b *Builder) halvingReduceScatter() {
	l := b.layout()
	f := fold(b.World)
	partner, inCore, me := f.role(b.Rank)
	own := l.size(b.Rank)
	if !inCore {
		b.eachPiece(l.total(b.World), func(o, k int) { b.Send(partner, k, b.In(o)) })
		b.Wait()
		b.Recv(partner, own, b.Out(0))
		b.Wait()
		return
	}
	src, acc := b.In(0), b.Tmp(0)
	if partner >= 0 {
		b.eachPiece(l.total(b.World), func(o, k int) { b.RecvReduce(partner, k, src.Plus(o), acc.Plus(o), false) })
		b.Wait()
		src = acc
	}
	part := func(c int) int { return l.off(f.first(c)) }
	b.halve(f, me, src, acc, part)
	if partner >= 0 {
		b.Send(partner, l.size(partner), acc.Plus(l.off(partner)))
	}
	b.Copy(own, acc.Plus(l.off(b.Rank)), b.Out(0))
	b.Wait()
}

// rounds returns how often a range of n must be halved until it has one member.
func rounds(n int) int { return bits.Len(uint(n - 1)) }
