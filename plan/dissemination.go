package plan

// In round k of the dissemination barrier every rank sends a token to the rank 2^k further on.
// After ceil(log2 n) rounds it has heard from all. (Hensgen, Finkel and Manber, "Two algorithms for
// barrier synchronization", 1988.)

func init() {
	builtin(Algorithm{Name: "dissemination", Collective: Barrier, Doc: "tokens at distance 1, 2, 4, ...",
		Cost: costDissemination},
		func(b *Builder) { b.dissemination(b.world()) })
}

func (b *Builder) dissemination(g group) {
	for dist := 1; dist < g.n; dist *= 2 {
		b.SendToken(g.rank(g.me + dist))
		b.RecvToken(g.rank(g.me - dist))
		b.Wait()
	}
}
