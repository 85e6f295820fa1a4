package plan

import "strconv"

// Trees carry rooted collectives in a logarithmic number of steps. In the
// k-nomial tree a rank's number, counted from the root, is written in base k:
// the parent has its lowest digit that is not zero cleared. k = 2 is the binomial
// tree. The chain is the degenerate tree whose pipeline uses every link once.

func init() {
	for _, t := range []struct {
		name   string
		degree int
		tags   []string
		doc    string
	}{
		{"binomial", 2, []string{"tree"}, "binomial tree"},
		{"knomial4", 4, []string{"tree", "small"}, "tree of degree 4; fewer levels than binomial"},
		{"chain", 0, []string{"large"}, "pipeline through all ranks"},
	} {
		builtin(Algorithm{Name: t.name, Collective: Broadcast, Doc: t.doc, Tags: t.tags, Cost: costTree(t.degree)},
			func(b *Builder) {
				b.Copy(only(b.Rank == b.Root, b.Count), b.In(0), b.Out(0))
				b.treeBroadcast(newTree(b.world(), b.Root, t.degree), b.Count, b.In(0), b.Out(0))
			})
		builtin(Algorithm{Name: t.name, Collective: Reduce, Doc: t.doc, Tags: t.tags, Cost: costTreeReduce(t.degree)},
			func(b *Builder) {
				b.treeReduce(newTree(b.world(), b.Root, t.degree), b.Count, b.In(0), b.Out(0))
			})
		if t.degree == 0 {
			continue // a chain would carry everything over every link
		}
		builtin(Algorithm{Name: t.name, Collective: Gather, Doc: t.doc, Tags: t.tags, Cost: costTreeGather(t.degree)},
			func(b *Builder) { b.treeGather(newTree(b.world(), b.Root, t.degree)) })
		builtin(Algorithm{Name: t.name, Collective: Scatter, Doc: t.doc, Tags: t.tags, Cost: costTreeGather(t.degree)},
			func(b *Builder) { b.treeScatter(newTree(b.world(), b.Root, t.degree)) })
	}
}

// tree is one member's view of a tree over a group. Members are numbered from
// the root: v = 0 is the root, and the subtree of v is v, v+1, ..., v+size-1.
type tree struct {
	group
	root, v  int
	size     int   // of the subtree of v, itself included
	parent   int   // its v; -1 at the root
	children []int // their v, largest subtree first
	sizes    []int // of the children's subtrees
}

// newTree returns the view of g.me. A degree of 0 makes a chain.
func newTree(g group, root, degree int) tree {
	t := tree{group: g, root: root, v: g.wrap(g.me - root), parent: -1}
	if degree == 0 {
		t.parent, t.size = t.v-1, g.n-t.v
		if t.size > 1 {
			t.children, t.sizes = []int{t.v + 1}, []int{t.size - 1}
		}
		return t
	}
	width := 1 // of the subtrees whose root differs from v in the present digit
	for width < g.n && t.v%(width*degree) == 0 {
		width *= degree
	}
	if t.v > 0 {
		t.parent = t.v - t.v%(width*degree)
	}
	t.size = min(width, g.n-t.v)
	for w := width / degree; w > 0; w /= degree {
		for d := degree - 1; d > 0; d-- {
			if c := t.v + d*w; c < g.n {
				t.children = append(t.children, c)
				t.sizes = append(t.sizes, min(w, g.n-c))
			}
		}
	}
	return t
}

// at returns the world rank of member v.
func (t tree) at(v int) int { return t.rank(t.root + v) }

// treeBroadcast brings n elements at src of the root to dst of the others, piece
// by piece: while a piece arrives, the one before it travels on.
func (b *Builder) treeBroadcast(t tree, n int, src, dst Ref) {
	if t.parent < 0 {
		b.eachPiece(n, func(o, k int) { b.sendAll(t, k, src.Plus(o)) })
		b.Wait()
		return
	}
	last, size := -1, 0
	b.eachPiece(n, func(o, k int) {
		b.Recv(t.at(t.parent), k, dst.Plus(o))
		if len(t.children) == 0 {
			return // a leaf takes everything in one go
		}
		if last >= 0 {
			b.sendAll(t, size, dst.Plus(last))
		}
		b.Wait()
		last, size = o, k
	})
	if last >= 0 {
		b.sendAll(t, size, dst.Plus(last))
	}
	b.Wait()
}

func (b *Builder) sendAll(t tree, n int, src Ref) {
	for _, c := range t.children {
		b.Send(t.at(c), n, src)
	}
}

// treeReduce reduces n elements at src of every member into dst of the root,
// piece by piece. Other members sum in two pieces of Tmp by turns: one travels
// on while the next is reduced.
func (b *Builder) treeReduce(t tree, n int, src, dst Ref) {
	turn, size := 0, min(n, b.piece(n))
	b.eachPiece(n, func(o, k int) {
		from, acc := src.Plus(o), b.Tmp(turn*size)
		if t.parent < 0 {
			acc = dst.Plus(o)
		}
		for i := len(t.children) - 1; i >= 0; i-- { // the smallest subtree is ready first
			b.RecvReduce(t.at(t.children[i]), k, from, acc, t.parent < 0 && i == 0)
			b.Wait()
			from = acc
		}
		if t.parent >= 0 {
			b.Send(t.at(t.parent), k, from)
		}
		turn = 1 - turn
	})
	b.Wait()
}

// runs calls f for the blocks of members v..v+size-1. They lie in one piece of the buffer, or in
// two where they wrap around its end. A piece lies at off in the buffer; at is how many elements of
// these members come before it.
func (t tree) runs(l layout, v, size int, f func(at, off, n int)) {
	lo := t.wrap(t.root + v)
	first := min(size, t.n-lo)
	n := l.span(lo, lo+first)
	f(0, l.off(lo), n)
	f(n, 0, l.span(0, size-first))
}

// treeGather collects subtrees in Tmp, in the order of the tree; the root puts
// them where they belong.
func (b *Builder) treeGather(t tree) {
	l := b.layout()
	own := l.size(b.Rank)
	if t.parent < 0 {
		for i, c := range t.children {
			t.runs(l, c, t.sizes[i], func(_, off, n int) { b.Recv(t.at(c), n, b.Out(off)) })
		}
		b.Copy(own, b.In(0), b.Out(l.off(b.Rank)))
		b.Wait()
		return
	}
	if len(t.children) == 0 {
		b.Send(t.at(t.parent), own, b.In(0))
		b.Wait()
		return
	}
	for i, c := range t.children {
		before := t.before(l, c)
		t.runs(l, c, t.sizes[i], func(at, _, n int) { b.Recv(t.at(c), n, b.Tmp(before+at)) })
	}
	b.Copy(own, b.In(0), b.Tmp(0))
	b.Wait()
	t.runs(l, t.v, t.size, func(at, _, n int) { b.Send(t.at(t.parent), n, b.Tmp(at)) })
	b.Wait()
}

// before returns how many elements the members t.v..c-1 have.
func (t tree) before(l layout, c int) int {
	n := 0
	t.runs(l, t.v, c-t.v, func(_, _, k int) { n += k })
	return n
}

func (b *Builder) treeScatter(t tree) {
	l := b.layout()
	own := l.size(b.Rank)
	if t.parent < 0 {
		for i, c := range t.children {
			t.runs(l, c, t.sizes[i], func(_, off, n int) { b.Send(t.at(c), n, b.In(off)) })
		}
		b.Copy(own, b.In(l.off(b.Rank)), b.Out(0))
		b.Wait()
		return
	}
	if len(t.children) == 0 {
		b.Recv(t.at(t.parent), own, b.Out(0))
		b.Wait()
		return
	}
	t.runs(l, t.v, t.size, func(at, _, n int) { b.Recv(t.at(t.parent), n, b.Tmp(at)) })
	b.Wait()
	for i, c := range t.children {
		before := t.before(l, c)
		t.runs(l, c, t.sizes[i], func(at, _, n int) { b.Send(t.at(c), n, b.Tmp(before+at)) })
	}
	b.Copy(own, b.Tmp(0), b.Out(0))
	b.Wait()
}

// depth returns the longest way from the root in a k-nomial tree of n members.
func depth(n, degree int) int {
	if degree == 0 {
		return n - 1
	}
	return len(strconv.FormatInt(int64(n-1), degree))
}
