package plan

import (
	"fmt"
	"slices"
)

// Staged plans serve ordinary memory on one host: a rank copies what others need
// into its Stage, and they take it from there. Messages larger than a slot pass
// through a ring of slots, one synchronization each.

const (
	stageChunk = 256 << 10 // default slot: the best of several on two cores that are near
	slots      = 4         // in a ring: one slot is written while one is read, and its reuse needs no other wait
)

func init() {
	for _, s := range []struct {
		of       Collective
		doc      string
		generate func(*Builder)
	}{
		{AllReduce, "each rank copies in, then reduces all stages", (*Builder).stagedAllReduce},
		{Reduce, "each rank copies in, the root reduces all stages", (*Builder).stagedReduce},
		{ReduceScatter, "each rank copies in, then reduces its block of all stages", (*Builder).stagedReduceScatter},
		{Broadcast, "the root copies in, the others copy out", (*Builder).stagedBroadcast},
		{AllGather, "each rank copies in, then copies out of all stages", (*Builder).stagedAllGather},
		{AllToAll, "each rank copies in, then copies its blocks out of all stages", (*Builder).stagedAllToAll},
		{Gather, "each rank copies in, the root copies out", (*Builder).stagedGather},
		{Scatter, "the root copies in, the others copy out", (*Builder).stagedScatter},
	} {
		supports := stageFits
		if s.of == AllToAll {
			supports = func(q Request) error {
				if err := evenOnly(q); err != nil {
					return err
				}
				return stageFits(q)
			}
		}
		builtin(Algorithm{Name: "staged", Collective: s.of, Doc: s.doc, Tags: []string{"one-sided", "ordinary"},
			OneSided: true, OneHost: true, Supports: supports}, s.generate)
	}
	builtin(Algorithm{Name: "onesided", Collective: Barrier, Doc: "one flag per rank", Tags: []string{"one-sided"},
		OneSided: true, OneHost: true}, (*Builder).Sync)
}

// stageFits reports whether every slot has room for a cache line per rank.
func stageFits(q Request) error {
	if need := slots * q.World * max(line, q.ElemSize); q.StageBytes < need {
		return fmt.Errorf("it needs %d bytes of shared scratch on each rank, and there are %d", need, q.StageBytes)
	}
	return nil
}

// slotSize returns the elements of a slot when n elements are to pass through:
// all of them if one slot holds them.
func (q Request) slotSize(n, slots int) int {
	room := q.StageBytes / q.ElemSize
	piece := q.elems(stageChunk)
	if n <= min(room, piece) {
		return max(1, n)
	}
	size := min(piece, room/slots)
	if per := q.perLine(); size > per {
		size -= size % per
	}
	return size
}

// exchange is a stream of chunks through the stages of a host. Every rank of the
// host runs it with the same number of chunks.
type exchange struct {
	chunks int
	slot   int // elements
	// write fills this rank's slot, read takes from the slots of others; at is
	// the slot's place in the Stage. Either may be nil.
	write, read func(chunk, at int)
	// sources are the ranks whose stages this one reads, readers those who read its
	// stage; {All} stands for every other rank.
	sources, readers []int
}

// exchange emits the stream. Phase k+1 of a rank says: my chunk k is written,
// and I have read chunk k-2. So a rank that has seen phase k-1 of its readers may write chunk k
// over chunk k-4.
func (b *Builder) exchange(x exchange) {
	start := b.phase
	b.needStage(min(x.chunks, slots) * x.slot)
	await := func(ranks []int, phase uint32) {
		for _, r := range ranks {
			b.Await(r, phase)
		}
	}
	write := func(k int) {
		if x.write != nil {
			if k >= slots && !slices.Equal(x.sources, []int{All}) {
				await(x.readers, start+uint32(k)-1)
			}
			x.write(k, k%slots*x.slot)
		}
		b.Notify()
	}
	for k := range x.chunks {
		if k == 0 {
			write(0)
		}
		if k+1 < x.chunks {
			write(k + 1)
		}
		if x.read != nil {
			await(x.sources, start+uint32(k)+1)
			x.read(k, k%slots*x.slot)
		}
	}
}

// chunk returns where chunk k of a stream of n elements starts and its size.
func chunk(n, slot, k int) (off, size int) {
	off = min(n, k*slot)
	return off, min(slot, n-off)
}

func chunks(n, slot int) int { return (n + slot - 1) / slot }

var allRanks = []int{All}

// stages lists the operands of a reduction in rank order: this rank's own
// contribution is still in its input, the others' are in their stages.
func (b *Builder) stages(ranks []int, own Ref, at int) []Ref {
	refs := make([]Ref, len(ranks))
	for i, r := range ranks {
		refs[i] = b.Of(r, Stage, at)
		if r == b.Rank {
			refs[i] = own
		}
	}
	return refs
}

func (b *Builder) ranks() []int {
	ranks := make([]int, b.World)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

func (b *Builder) stagedAllReduce() {
	slot, all := b.slotSize(b.Count, slots), b.ranks()
	b.exchange(exchange{chunks: chunks(b.Count, slot), slot: slot, sources: allRanks, readers: allRanks,
		write: func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			b.Copy(n, b.In(off), b.Stage(at))
		},
		read: func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			b.Fold(n, true, b.stages(all, b.In(off), at), b.Out(off))
		}})
}

func (b *Builder) stagedReduce() {
	slot, all := b.slotSize(b.Count, slots), b.ranks()
	x := exchange{chunks: chunks(b.Count, slot), slot: slot, readers: []int{b.Root},
		write: func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			b.Copy(n, b.In(off), b.Stage(at))
		}}
	if b.Rank == b.Root {
		x.write, x.sources, x.readers = nil, allRanks, nil
		x.read = func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			b.Fold(n, true, b.stages(all, b.In(off), at), b.Out(off))
		}
	}
	b.exchange(x)
}

func (b *Builder) stagedBroadcast() {
	if b.Rank == b.Root {
		b.Copy(b.Count, b.In(0), b.Out(0))
	}
	b.exchange(b.broadcastThrough(b.Root, b.Count, b.In(0), b.Out(0)))
}

// broadcastThrough streams n elements at src of one rank to dst of the others.
func (b *Builder) broadcastThrough(root, n int, src, dst Ref) exchange {
	slot := b.slotSize(n, slots)
	x := exchange{chunks: chunks(n, slot), slot: slot, sources: []int{root},
		read: func(k, at int) {
			off, n := chunk(n, slot, k)
			b.Copy(n, b.Of(root, Stage, at), dst.Plus(off))
		}}
	if b.Rank == root {
		x.read, x.sources, x.readers = nil, nil, allRanks
		x.write = func(k, at int) {
			off, n := chunk(n, slot, k)
			b.Copy(n, src.Plus(off), b.Stage(at))
		}
	}
	return x
}

func (b *Builder) stagedAllGather() {
	l := b.layout()
	own := l.size(b.Rank)
	slot := b.slotSize(l.largest(b.World), slots)
	b.exchange(exchange{chunks: chunks(l.largest(b.World), slot), slot: slot, sources: allRanks, readers: allRanks,
		write: func(k, at int) {
			off, n := chunk(own, slot, k)
			b.Copy(n, b.In(off), b.Stage(at), b.Out(l.off(b.Rank)+off))
		},
		read: func(k, at int) {
			for i := 1; i < b.World; i++ {
				r := (b.Rank + i) % b.World
				off, n := chunk(l.size(r), slot, k)
				b.Copy(n, b.Of(r, Stage, at), b.Out(l.off(r)+off))
			}
		}})
}

func (b *Builder) stagedGather() {
	l := b.layout()
	own := l.size(b.Rank)
	slot := b.slotSize(l.largest(b.World), slots)
	x := exchange{chunks: chunks(l.largest(b.World), slot), slot: slot, readers: []int{b.Root},
		write: func(k, at int) {
			off, n := chunk(own, slot, k)
			b.Copy(n, b.In(off), b.Stage(at))
		}}
	if b.Rank == b.Root {
		b.Copy(own, b.In(0), b.Out(l.off(b.Rank)))
		x.write, x.sources, x.readers = nil, allRanks, nil
		x.read = func(k, at int) {
			for r := range b.World {
				if off, n := chunk(l.size(r), slot, k); r != b.Root {
					b.Copy(n, b.Of(r, Stage, at), b.Out(l.off(r)+off))
				}
			}
		}
	}
	b.exchange(x)
}

// shares divides a slot into one share per rank, for collectives in which a rank
// has something else for every other.
func (b *Builder) shares(largest int) (share, count int) { return b.sharesOf(largest, b.World) }

// sharesOf divides a slot into so many shares.
func (q Request) sharesOf(largest, shares int) (share, count int) {
	slot := q.slotSize(largest*shares, slots)
	share = max(1, slot/shares)
	if per := q.perLine(); share > per && share < largest {
		share -= share % per
	}
	return share, chunks(largest, share)
}

func (b *Builder) stagedScatter() {
	l := b.layout()
	own := l.size(b.Rank)
	share, count := b.shares(l.largest(b.World))
	x := exchange{chunks: count, slot: share * b.World, sources: []int{b.Root},
		read: func(k, at int) {
			off, n := chunk(own, share, k)
			b.Copy(n, b.Of(b.Root, Stage, at+b.Rank*share), b.Out(off))
		}}
	if b.Rank == b.Root {
		b.Copy(own, b.In(l.off(b.Rank)), b.Out(0))
		x.read, x.sources, x.readers = nil, nil, allRanks
		x.write = func(k, at int) { b.fillShares(l, share, k, at) }
	}
	b.exchange(x)
}

// fillShares copies chunk k of every other rank's block of In to its share.
func (b *Builder) fillShares(l layout, share, k, at int) {
	for i := 1; i < b.World; i++ {
		r := (b.Rank + i) % b.World
		off, n := chunk(l.size(r), share, k)
		b.Copy(n, b.In(l.off(r)+off), b.Stage(at+r*share))
	}
}

func (b *Builder) stagedReduceScatter() {
	l, all := b.layout(), b.ranks()
	own := l.size(b.Rank)
	share, count := b.shares(l.largest(b.World))
	b.exchange(exchange{chunks: count, slot: share * b.World, sources: allRanks, readers: allRanks,
		write: func(k, at int) { b.fillShares(l, share, k, at) },
		read: func(k, at int) {
			off, n := chunk(own, share, k)
			b.Fold(n, true, b.stages(all, b.In(l.off(b.Rank)+off), at+b.Rank*share), b.Out(off))
		}})
}

func (b *Builder) stagedAllToAll() {
	l := layout{each: b.Count}
	share, count := b.shares(b.Count)
	b.Copy(b.Count, b.In(b.Rank*b.Count), b.Out(b.Rank*b.Count))
	b.exchange(exchange{chunks: count, slot: share * b.World, sources: allRanks, readers: allRanks,
		write: func(k, at int) { b.fillShares(l, share, k, at) },
		read: func(k, at int) {
			off, n := chunk(b.Count, share, k)
			for i := 1; i < b.World; i++ {
				r := (b.Rank + i) % b.World
				b.Copy(n, b.Of(r, Stage, at+b.Rank*share), b.Out(r*b.Count+off))
			}
		}})
}
