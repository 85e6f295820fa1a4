package plan

// The ring sends every block once around all ranks: 2(n-1) messages of 1/n of
// the data for an all-reduce, which is the least possible per link
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009).

func init() {
	builtin(Algorithm{Name: "ring", Collective: AllReduce,
		Doc:  "reduce-scatter and all-gather around a ring; least bytes per link",
		Tags: []string{"large"}, Cost: costRingAllReduce},
		func(b *Builder) { b.ringAllReduce(b.world(), b.Count, b.In(0), b.Out(0)) })
	builtin(Algorithm{Name: "ring", Collective: AllGather, Doc: "every block travels around a ring",
		Tags: []string{"large"}, Cost: costRing},
		func(b *Builder) { b.ringAllGather() })
	builtin(Algorithm{Name: "ring", Collective: ReduceScatter, Doc: "every block is reduced on its way around a ring",
		Tags: []string{"large"}, Cost: costRingReduceScatter},
		func(b *Builder) { b.ringReduceScatter() })
}

// ringAllReduce reduces n elements at src of every member into dst of every
// member. src and dst may be the same place.
func (b *Builder) ringAllReduce(g group, n int, src, dst Ref) {
	next, prev := g.rank(g.me+1), g.rank(g.me-1)
	part := func(i int) (int, int) { return cut(n, g.n, g.wrap(i), b.perLine()) }
	for s := range g.n - 1 {
		from := dst
		if s == 0 {
			from = src
		}
		off, size := part(g.me - s)
		b.eachPiece(size, func(o, k int) { b.Send(next, k, from.Plus(off+o)) })
		off, size = part(g.me - s - 1)
		b.eachPiece(size, func(o, k int) { b.RecvReduce(prev, k, src.Plus(off+o), dst.Plus(off+o), s == g.n-2) })
		b.Wait()
	}
	for s := range g.n - 1 {
		off, size := part(g.me + 1 - s)
		b.eachPiece(size, func(o, k int) { b.Send(next, k, dst.Plus(off+o)) })
		off, size = part(g.me - s)
		b.eachPiece(size, func(o, k int) { b.Recv(prev, k, dst.Plus(off+o)) })
		b.Wait()
	}
}

func (b *Builder) ringAllGather() {
	g, l := b.world(), b.layout()
	next, prev := g.rank(g.me+1), g.rank(g.me-1)
	for s := range g.n - 1 {
		give, take := g.wrap(g.me-s), g.wrap(g.me-s-1)
		from := b.Out(l.off(give))
		if s == 0 {
			from = b.In(0)
		}
		b.eachPiece(l.size(give), func(o, k int) { b.Send(next, k, from.Plus(o)) })
		b.eachPiece(l.size(take), func(o, k int) { b.Recv(prev, k, b.Out(l.off(take)+o)) })
		if s == 0 { // while the first messages fly
			b.Copy(l.size(g.me), b.In(0), b.Out(l.off(g.me)))
		}
		b.Wait()
	}
}

func (b *Builder) ringReduceScatter() {
	g, l := b.world(), b.layout()
	next, prev := g.rank(g.me+1), g.rank(g.me-1)
	half := l.largest(b.World) // partial sums alternate between two halves of Tmp
	for s := range g.n - 1 {
		give, take := g.wrap(g.me-s-1), g.wrap(g.me-s-2)
		from, to := b.Tmp((s+1)%2*half), b.Tmp(s%2*half)
		if s == 0 {
			from = b.In(l.off(give))
		}
		if s == g.n-2 {
			to = b.Out(0)
		}
		b.eachPiece(l.size(give), func(o, k int) { b.Send(next, k, from.Plus(o)) })
		b.eachPiece(l.size(take), func(o, k int) {
			b.RecvReduce(prev, k, b.In(l.off(take)+o), to.Plus(o), s == g.n-2)
		})
		b.Wait()
	}
}
