package plan

import "errors"

// Direct plans work on the caller's buffers of all ranks of a host in place:
// each element is read once and written once per rank. A rank announces that its buffers are ready
// (phase 1) and stays until no rank uses them any more.

func init() {
	for _, d := range []struct {
		of       Collective
		doc      string
		generate func(*Builder)
		cost     func(Request, Machine) float64
	}{
		{AllReduce, "each rank reduces its part of all inputs into all outputs", (*Builder).directAllReduce,
			costDirectReduce},
		{Reduce, "each rank reduces its part of all inputs into the root's output", (*Builder).directReduce,
			costDirectReduce},
		{ReduceScatter, "each rank reduces its block of all inputs", (*Builder).directReduceScatter, costDirectReduce},
		{Broadcast, "each rank copies from the root's input; the root a part of large ones to all",
			(*Builder).directBroadcast, costDirectCopy},
		{AllGather, "each rank copies from all inputs", (*Builder).directAllGather, costDirectCopy},
		{AllToAll, "each rank copies its blocks from all inputs", (*Builder).directAllToAll, costDirectCopy},
		{Gather, "each rank copies into the root's output", (*Builder).directGather, costDirectCopy},
		{Scatter, "each rank copies from the root's input", (*Builder).directScatter, costDirectCopy},
	} {
		a := Algorithm{Name: "direct", Collective: d.of, Doc: d.doc, Tags: []string{"one-sided", "large"},
			OneSided: true, OneHost: true, Mapped: true, Cost: d.cost}
		if d.of == AllToAll {
			a.Supports = evenOnly
		}
		builtin(a, func(b *Builder) {
			b.Mapped()
			d.generate(b)
		})
	}
}

var errUneven = errors.New("a rank does not know where its blocks lie in the buffers of the others when all_to_all blocks differ")

func evenOnly(q Request) error {
	if q.SendCounts != nil || q.RecvCounts != nil {
		return errUneven
	}
	return nil
}

// everywhere returns the same place of a buffer on all ranks, in rank order.
func (b *Builder) everywhere(buf Buf, off int) []Ref {
	refs := make([]Ref, b.World)
	for r := range refs {
		refs[r] = b.Of(r, buf, off)
	}
	return refs
}

func (b *Builder) directAllReduce() {
	off, n := cut(b.Count, b.World, b.Rank, b.perLine())
	b.Sync()
	b.Fold(n, true, b.everywhere(In, off), b.everywhere(Out, off)...)
	b.Sync()
}

func (b *Builder) directReduce() {
	off, n := cut(b.Count, b.World, b.Rank, b.perLine())
	b.Sync()
	b.Fold(n, true, b.everywhere(In, off), b.Of(b.Root, Out, off))
	b.Sync()
}

func (b *Builder) directReduceScatter() {
	l := b.layout()
	b.Sync()
	b.Fold(l.size(b.Rank), true, b.everywhere(In, l.off(b.Rank)), b.Out(0))
	b.Sync()
}

// rootCopies is the least part of a broadcast, in bytes, that the root copies to the others, who must then wait for it
// in the end.
const rootCopies = 32 << 10

// rootShare returns where the root's part of a broadcast starts, the last of as many as there are ranks, and how long
// it is.
func (q Request) rootShare() (first, n int) {
	return cut(q.Count, q.World, q.World-1, q.perLine())
}

// directBroadcast has the root, which would else wait for the others, copy as much of a large vector as each of them
// does.
func (b *Builder) directBroadcast() {
	first, n := b.rootShare()
	if n*b.ElemSize < rootCopies {
		b.rootOffers(func() { b.Copy(b.Count, b.In(0), b.Out(0)) },
			func() { b.Copy(b.Count, b.Of(b.Root, In, 0), b.Out(0)) })
		return
	}
	b.Sync()
	if b.Rank == b.Root {
		b.Copy(first, b.In(0), b.Out(0))
		b.Copy(n, b.In(first), b.everywhere(Out, first)...)
	} else {
		b.Copy(first, b.Of(b.Root, In, 0), b.Out(0))
	}
	b.Sync()
}

// directScatter has each rank, the root too, copy one block: with equal blocks all ranks have equal work.
func (b *Builder) directScatter() {
	l := b.layout()
	copyOwn := func() { b.Copy(l.size(b.Rank), b.Of(b.Root, In, l.off(b.Rank)), b.Out(0)) }
	b.rootOffers(copyOwn, copyOwn)
}

// directGather is the mirror image. A root that gathers in place has nothing to copy, but the others don't know that.
// If each rank copied a share of each block, the root's block would move between the cores and back whenever the root
// isn't in place.
func (b *Builder) directGather() {
	l := b.layout()
	copyOwn := func() { b.Copy(l.size(b.Rank), b.In(0), b.Of(b.Root, Out, l.off(b.Rank))) }
	b.rootOffers(copyOwn, copyOwn)
}

// rootOffers is the frame of plans in which only the root's buffers are shared:
// it opens them and stays until the others have finished.
func (b *Builder) rootOffers(root, other func()) {
	if b.Rank == b.Root {
		opened := b.Notify()
		root()
		b.Await(All, opened)
		return
	}
	b.Await(b.Root, 1)
	other()
	b.Notify()
}

func (b *Builder) directAllGather() {
	l := b.layout()
	opened := b.Notify()
	b.Copy(l.size(b.Rank), b.In(0), b.Out(l.off(b.Rank)))
	for i := 1; i < b.World; i++ { // each starts at another rank's memory
		r := (b.Rank + i) % b.World
		b.Await(r, opened)
		b.Copy(l.size(r), b.Of(r, In, 0), b.Out(l.off(r)))
	}
	b.Sync()
}

func (b *Builder) directAllToAll() {
	n := b.Count
	into := b.Out
	if b.InPlace { // no rank's blocks may be overwritten before all have read theirs
		into = b.Tmp
	}
	opened := b.Notify()
	if !b.InPlace {
		b.Copy(n, b.In(b.Rank*n), b.Out(b.Rank*n))
	}
	for i := 1; i < b.World; i++ {
		r := (b.Rank + i) % b.World
		b.Await(r, opened)
		b.Copy(n, b.Of(r, In, b.Rank*n), into(r*n))
	}
	b.Sync()
	if b.InPlace {
		b.Copy(b.Rank*n, b.Tmp(0), b.Out(0))
		rest := (b.Rank + 1) * n
		b.Copy(b.World*n-rest, b.Tmp(rest), b.Out(rest))
	}
}
