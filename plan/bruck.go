package plan

// Bruck's algorithms take ceil(log2 n) steps in any world (Bruck, Ho, Kipnis,
// Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997).

func init() {
	builtin(Algorithm{Name: "bruck", Collective: AllGather, Doc: "doubles what is known each step, in any world",
		Tags: []string{"small"}, Cost: costBruckAllGather},
		(*Builder).bruckAllGather)
	builtin(Algorithm{Name: "bruck", Collective: AllToAll, Doc: "blocks travel by the binary digits of their distance",
		Tags:     []string{"small"},
		Supports: evenOnly, Cost: costBruckAllToAll},
		(*Builder).bruckAllToAll)
}

// bruckAllGather receives every block where it belongs, so that no rotation is
// needed at the end; a run of blocks that wraps around takes two messages.
func (b *Builder) bruckAllGather() {
	l := b.layout()
	t := tree{group: b.world()} // only for its runs, counted from rank 0
	b.Copy(l.size(b.Rank), b.In(0), b.Out(l.off(b.Rank)))
	for dist := 1; dist < b.World; dist *= 2 {
		count := min(dist, b.World-dist)
		to, from := t.wrap(b.Rank-dist), t.wrap(b.Rank+dist)
		t.runs(l, b.Rank, count, func(_, off, n int) { b.Send(to, n, b.Out(off)) })
		t.runs(l, from, count, func(_, off, n int) { b.Recv(from, n, b.Out(off)) })
		b.Wait()
	}
}

// bruckAllToAll keeps in place j of Tmp the block that is j ranks from its goal
// when it starts. In the step for a digit, all blocks whose j has it move on.
func (b *Builder) bruckAllToAll() {
	n, g := b.Count, b.world()
	half := (g.n + 1) / 2 * n
	work, out, in := 0, g.n*n, g.n*n+half // places in Tmp
	for j := range g.n {
		b.Copy(n, b.In(g.wrap(g.me+j)*n), b.Tmp(work+j*n))
	}
	for digit := 1; digit < g.n; digit *= 2 {
		count := 0
		each := func(f func(j, i int)) {
			count = 0
			for j := digit; j < g.n; j++ {
				if j&digit != 0 {
					f(j, count)
					count++
				}
			}
		}
		each(func(j, i int) { b.Copy(n, b.Tmp(work+j*n), b.Tmp(out+i*n)) })
		b.Send(g.rank(g.me+digit), count*n, b.Tmp(out))
		b.Recv(g.rank(g.me-digit), count*n, b.Tmp(in))
		b.Wait()
		each(func(j, i int) { b.Copy(n, b.Tmp(in+i*n), b.Tmp(work+j*n)) })
	}
	for j := range g.n {
		b.Copy(n, b.Tmp(work+j*n), b.Out(g.wrap(g.me-j)*n))
	}
}
