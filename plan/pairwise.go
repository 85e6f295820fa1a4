package plan

// Pairwise exchange: in step s every rank sends to the rank s further on and
// receives from the rank s before, so that each block travels once.

func init() {
	builtin(Algorithm{Name: "pairwise", Collective: AllToAll, Doc: "one partner after the other; any block sizes",
		Tags: []string{"large"}, Cost: costPairwise},
		(*Builder).pairwiseAllToAll)
	builtin(Algorithm{Name: "pairwise", Collective: ReduceScatter,
		Doc: "one partner after the other; each block travels once", Cost: costPairwiseReduceScatter},
		(*Builder).pairwiseReduceScatter)
}

func (b *Builder) pairwiseAllToAll() {
	send, recv := newLayout(b.SendCounts, b.Count), newLayout(b.RecvCounts, b.Count)
	from := b.In
	if b.InPlace {
		from = b.Tmp
		b.Copy(send.total(b.World), b.In(0), b.Tmp(0))
	} else {
		b.Copy(send.size(b.Rank), b.In(send.off(b.Rank)), b.Out(recv.off(b.Rank)))
	}
	g := b.world()
	for s := 1; s < g.n; s++ {
		to, of := g.rank(g.me+s), g.rank(g.me-s)
		b.eachPiece(send.size(to), func(o, k int) { b.Send(to, k, from(send.off(to)+o)) })
		b.eachPiece(recv.size(of), func(o, k int) { b.Recv(of, k, b.Out(recv.off(of)+o)) })
		if b.endsWithToken(send.size(to)) {
			b.SendToken(to)
		}
		if b.endsWithToken(recv.size(of)) {
			b.RecvToken(of)
		}
		b.Wait()
	}
}

// endsWithToken reports whether a token follows the pieces of a block. In an uneven exchange each
// rank knows its own sizes only. The last piece of a block, and no other, is short or empty. So if
// two ranks differ about a size, a message is longer or shorter than its receiver expects, and no
// rank waits for one that is never sent.
func (b *Builder) endsWithToken(n int) bool { return b.SendCounts != nil && n%b.piece(n) == 0 }

func (b *Builder) pairwiseReduceScatter() {
	g, l := b.world(), b.layout()
	own := b.In(l.off(b.Rank))
	src := own
	for s := 1; s < g.n; s++ {
		to, of := g.rank(g.me+s), g.rank(g.me-s)
		b.eachPiece(l.size(to), func(o, k int) { b.Send(to, k, b.In(l.off(to)+o)) })
		b.eachPiece(l.size(b.Rank), func(o, k int) { b.RecvReduce(of, k, src.Plus(o), b.Out(o), s == g.n-1) })
		b.Wait()
		src = b.Out(0)
	}
}
