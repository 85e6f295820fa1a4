package gloo

import (
	"math/bits"
	"unsafe"
)

// block is a part of a buffer for, or of, a rank.
type block struct {
	off, n int
}

// even are the blocks of a buffer that is divided evenly.
func even(bytes, n int) []block {
	all := make([]block, n)
	for r := range all {
		all[r] = block{r * (bytes / n), bytes / n}
	}
	return all
}

// blocks are those of a buffer with so many elements for each rank.
func blocks(counts []int, elem int) []block {
	all, off := make([]block, len(counts)), 0
	for r, c := range counts {
		all[r] = block{off, c * elem}
		off += c * elem
	}
	return all
}

// shares are blocks of so many elements, or, if counts is nil, n of each bytes.
func shares(counts []int, elem, each, n int) []block {
	if counts == nil {
		return even(each*n, n)
	}
	return blocks(counts, elem)
}

// allGather fills buf with the blocks of all ranks, of which this one's is there. Each goes round the ring in two
// parts, of which the first may be empty.
func (g *group) allGather(buf unsafe.Pointer, bytes int) error {
	if g.size == 1 || bytes == 0 {
		return nil
	}
	whole := bytes / g.size
	part := [2]block{{0, whole / 2}, {whole / 2, whole - whole/2}}
	at := func(i, behind int) (unsafe.Pointer, int) {
		b := part[i&1]
		return within(buf, ((g.size+g.rank-i/2-behind)*whole+b.off)%bytes, b.n), b.n
	}
	return g.passed(2*(g.size-1), 2, at)
}

// allGatherV is allGather for blocks of different sizes, which go round whole.
func (g *group) allGatherV(buf unsafe.Pointer, all []block) error {
	return g.passed(g.size-1, 1, func(i, behind int) (unsafe.Pointer, int) {
		b := all[((g.rank-i-behind)%g.size+g.size)%g.size]
		return within(buf, b.off, b.n), b.n
	})
}

// passed sends in each step to the next rank, and receives from the one before. Empty blocks go round, too. So many
// steps are under way at once.
func (g *group) passed(steps, ahead int, at func(i, behind int) (unsafe.Pointer, int)) error {
	next, before := (g.rank+1)%g.size, (g.rank+g.size-1)%g.size
	for i := range steps {
		for len(g.open) > 2*(ahead-1) {
			if err := g.await(g.open[0]); err != nil {
				return err
			}
		}
		p, n := at(i, 0)
		g.post(next, p, n, true)
		p, n = at(i, 1)
		g.post(before, p, n, false)
	}
	return g.all()
}

// broadcast passes buf on along a binomial tree.
func (g *group) broadcast(buf unsafe.Pointer, bytes, root int) error {
	virtual := (g.rank - root + g.size) % g.size
	dim := bits.Len(uint(g.size - 1))
	for i, mask := 0, 1<<dim-1; i < dim; i++ {
		mask ^= 1 << i
		other := virtual ^ 1<<i
		if virtual&mask != 0 || other >= g.size {
			continue
		}
		peer := (other + root) % g.size
		if virtual&(1<<i) == 0 {
			g.post(peer, buf, bytes, true)
		} else if err := g.await(g.post(peer, buf, bytes, false)); err != nil {
			return err
		}
	}
	return g.all()
}

// gather takes the blocks of the others to the root, whose own is there.
func (g *group) gather(in, out unsafe.Pointer, all []block, root int) error {
	if g.rank != root {
		g.post(root, in, all[g.rank].n, true)
		return g.all()
	}
	for r, b := range all {
		if r != root {
			g.post(r, within(out, b.off, b.n), b.n, false)
		}
	}
	return g.all()
}

// scatter takes the root's blocks to the others.
func (g *group) scatter(in, out unsafe.Pointer, all []block, root int) error {
	if g.rank != root {
		g.post(root, out, all[g.rank].n, false)
		return g.all()
	}
	for r, b := range all {
		if r != root {
			g.post(r, within(in, b.off, b.n), b.n, true)
		}
	}
	return g.all()
}

// allToAll takes each rank's blocks to the others. Empty ones, too.
func (g *group) allToAll(in, out unsafe.Pointer, ins, outs []block) error {
	for i := 1; i < g.size; i++ {
		to, from := (g.rank+i)%g.size, (g.rank+g.size-i)%g.size
		g.post(to, within(in, ins[to].off, ins[to].n), ins[to].n, true)
		g.post(from, within(out, outs[from].off, outs[from].n), outs[from].n, false)
	}
	return g.all()
}

// scan takes what the ranks before have combined, and gives it to the next with what this one adds.
func (g *group) scan(buf unsafe.Pointer, bytes int) error {
	if g.rank > 0 && bytes > 0 {
		came, err := g.scratch.Take(bytes)
		if err != nil {
			return err
		}
		if err := g.await(g.post(g.rank-1, came, bytes, false)); err != nil {
			return err
		}
		g.fold(came, buf, bytes/g.work.Elem)
		move(buf, came, bytes)
	}
	if g.rank < g.size-1 && bytes > 0 {
		g.post(g.rank+1, buf, bytes, true)
	}
	return g.all()
}

// barrier waits for all ranks.
func (g *group) barrier() error {
	for d := 1; d < g.size; d *= 2 {
		g.post((g.rank+g.size-d)%g.size, nil, 0, false)
		g.post((g.rank+d)%g.size, nil, 0, true)
		if err := g.all(); err != nil {
			return err
		}
	}
	return nil
}
