package plan

import "slices"

// Two-level plans in which every rank has a block of its own. Data that crosses between two hosts is summed,
// or packed, before.

func init() {
	for _, a := range []struct {
		of       Collective
		doc      string
		generate func(*Builder)
	}{
		{ReduceScatter, "stages on each host, whose ranks then exchange its sums with the blocks' owners",
			(*Builder).twoLevelReduceScatter},
		{Gather, "stages on each host, one message from each to the root", (*Builder).twoLevelGather},
		{Scatter, "one message from the root to each host, stages on it", (*Builder).twoLevelScatter},
	} {
		builtin(Algorithm{Name: "two_level", Collective: a.of, Doc: a.doc, Tags: []string{"hosts"},
			OneSided: true, Supports: twoLevels}, a.generate)
	}
}

// twoLevelReduceScatter serves one host's blocks after the other, every host another one: its own at first, then that
// of the host which is s further on. Each block is summed on each host by one of its ranks, which sends the sum to the
// block's owner; the owner adds up the sums of the hosts. A block's carrier is who sums it.
func (b *Builder) twoLevelReduceScatter() {
	v, l := b.levels(-1), b.layout()
	most := 0
	for _, ranks := range v.hosts {
		most = max(most, len(ranks))
	}
	share, count := b.sharesOf(l.largest(b.World), most)
	here, alone := v.leaders, len(v.host) == 1
	mine := slices.Index(v.host, b.Rank)
	for s := range v.hosts {
		to, from := here.wrap(here.me+s), here.wrap(here.me-s)
		x := exchange{chunks: count, slot: share * most, sources: allRanks, readers: allRanks,
			write: func(k, at int) {
				for j, t := range v.hosts[to] {
					if off, n := chunk(l.size(t), share, k); v.carrier(here.me, j) != b.Rank {
						b.Copy(n, b.In(l.off(t)+off), b.Stage(at+j*share))
					}
				}
			},
			read: func(k, at int) {
				sums := 0
				for j, t := range v.hosts[to] {
					if v.carrier(here.me, j) != b.Rank {
						continue
					}
					off, n := chunk(l.size(t), share, k)
					sum := b.In(l.off(t) + off)
					if !alone {
						dst := b.Tmp(sums * share)
						if s == 0 {
							dst = b.Out(off)
						}
						b.Fold(n, false, b.stages(v.host, sum, at+j*share), dst)
						sum = dst
					}
					if s > 0 {
						b.Send(t, n, sum)
						sums++
					}
				}
				if s == 0 {
					return
				}
				off, n := chunk(l.size(b.Rank), share, k)
				sum := b.Out(off)
				if s == 1 && alone {
					sum = b.In(l.off(b.Rank) + off)
				}
				b.RecvReduce(v.carrier(from, mine), n, sum, b.Out(off), s == len(v.hosts)-1)
				b.Wait()
			}}
		if alone {
			for k := range count {
				x.read(k, 0)
			}
			continue
		}
		if s > 0 {
			b.Sync() // the slots of the host before are free
		}
		b.exchange(x)
	}
}

// packed calls f for the runs of neighboring blocks of a host's ranks, which lie at off in the whole buffer, and at at
// where the host's blocks are put together.
func packed(ranks []int, l layout, f func(at, off, n int)) {
	at := 0
	eachRun(ranks, l, func(off, n int) {
		f(at, off, n)
		at += n
	})
}

// leaderPlace returns where a leader has the block of a rank of its host: the root in its own buffer, others in Tmp.
func (b *Builder) leaderPlace(v levels, l layout, own func(off int) Ref) func(r, off int) Ref {
	if b.Rank == b.Root {
		return func(r, off int) Ref { return own(l.off(r) + off) }
	}
	at, next := make(map[int]int, len(v.host)), 0
	for _, r := range v.host {
		at[r] = next
		next += l.size(r)
	}
	return func(r, off int) Ref { return b.Tmp(at[r] + off) }
}

// largestOf returns the size of the largest block of some ranks.
func (l layout) largestOf(ranks []int) int {
	most := 0
	for _, r := range ranks {
		most = max(most, l.size(r))
	}
	return most
}

func (b *Builder) twoLevelGather() {
	v, l := b.levels(b.Root), b.layout()
	own, place := l.size(b.Rank), b.leaderPlace(v, l, b.Out)
	if b.Rank == b.Root {
		for h, ranks := range v.hosts {
			if h != v.leaders.me {
				packed(ranks, l, func(_, off, n int) {
					b.eachPiece(n, func(o, k int) { b.Recv(v.leaders.rank(h), k, b.Out(off+o)) })
				})
			}
		}
	}
	if len(v.host) > 1 {
		most := l.largestOf(v.host)
		slot := b.slotSize(most, slots)
		x := exchange{chunks: chunks(most, slot), slot: slot, readers: []int{v.leader},
			write: func(k, at int) {
				off, n := chunk(own, slot, k)
				b.Copy(n, b.In(off), b.Stage(at))
			}}
		if b.Rank == v.leader {
			x.write, x.sources, x.readers = nil, allRanks, nil
			x.read = func(k, at int) {
				for _, r := range v.host {
					if off, n := chunk(l.size(r), slot, k); r != b.Rank {
						b.Copy(n, b.Of(r, Stage, at), place(r, off))
					}
				}
			}
		}
		b.exchange(x)
	}
	if b.Rank != v.leader {
		return
	}
	b.Copy(own, b.In(0), place(b.Rank, 0))
	if b.Rank != b.Root {
		packed(v.host, l, func(at, _, n int) {
			b.eachPiece(n, func(o, k int) { b.Send(b.Root, k, b.Tmp(at+o)) })
		})
	}
	b.Wait()
}

func (b *Builder) twoLevelScatter() {
	v, l := b.levels(b.Root), b.layout()
	own, place := l.size(b.Rank), b.leaderPlace(v, l, b.In)
	switch b.Rank {
	case b.Root:
		for h, ranks := range v.hosts {
			if h != v.leaders.me {
				packed(ranks, l, func(_, off, n int) {
					b.eachPiece(n, func(o, k int) { b.Send(v.leaders.rank(h), k, b.In(off+o)) })
				})
			}
		}
	case v.leader:
		packed(v.host, l, func(at, _, n int) {
			b.eachPiece(n, func(o, k int) { b.Recv(b.Root, k, b.Tmp(at+o)) })
		})
		b.Wait()
	}
	if b.Rank == v.leader {
		b.Copy(own, place(b.Rank, 0), b.Out(0))
	}
	if len(v.host) > 1 {
		share, count := b.sharesOf(l.largestOf(v.host), len(v.host))
		x := exchange{chunks: count, slot: share * len(v.host), sources: []int{v.leader},
			read: func(k, at int) {
				off, n := chunk(own, share, k)
				b.Copy(n, b.Of(v.leader, Stage, at+slices.Index(v.host, b.Rank)*share), b.Out(off))
			}}
		if b.Rank == v.leader {
			x.read, x.sources, x.readers = nil, nil, allRanks
			x.write = func(k, at int) {
				for j, r := range v.host {
					if off, n := chunk(l.size(r), share, k); r != b.Rank {
						b.Copy(n, place(r, off), b.Stage(at+j*share))
					}
				}
			}
		}
		b.exchange(x)
	}
	b.Wait()
}
