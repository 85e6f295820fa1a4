package plan

import (
	"errors"
	"slices"
)

// Two-level plans move data between hosts once per host: the ranks of a host
// work one-sided through their stages, and one leader of each host speaks to the
// leaders of the others. (The all-reduce stands in split.go, those whose ranks have a
// block each in twolevel_blocks.go.)

func init() {
	for _, a := range []struct {
		of       Collective
		doc      string
		generate func(*Builder)
	}{
		{Broadcast, "binomial tree between hosts, stages on each", (*Builder).twoLevelBroadcast},
		{Reduce, "stages on each host, binomial tree between them", (*Builder).twoLevelReduce},
		{AllGather, "stages on each host, ring between them", (*Builder).twoLevelAllGather},
		{Barrier, "flags on each host, dissemination between them", (*Builder).twoLevelBarrier},
	} {
		builtin(Algorithm{Name: "two_level", Collective: a.of, Doc: a.doc, Tags: []string{"hosts"},
			OneSided: true, Supports: twoLevels}, a.generate)
	}
}

func twoLevels(q Request) error {
	switch hosts := q.Topo.Hosts(q.World); {
	case hosts == 1:
		return errors.New("it needs several hosts")
	case hosts == q.World:
		return errors.New("it needs ranks that share a host")
	case q.Collective == Barrier:
		return nil
	}
	return stageFits(q)
}

// levels is one rank's view of the hosts.
type levels struct {
	hosts   [][]int
	host    []int // the ranks of this one
	leader  int   // of this host
	leaders group // of all hosts; me is this rank's host
}

// levels chooses the lowest rank of each host to lead it, but root for its own.
func (b *Builder) levels(root int) levels {
	v := levels{hosts: b.Topo.groups(b.World)}
	for h, ranks := range v.hosts {
		leader := ranks[0]
		if contains(ranks, root) {
			leader = root
		}
		v.leaders.ranks = append(v.leaders.ranks, leader)
		if contains(ranks, b.Rank) {
			v.host, v.leader, v.leaders.me = ranks, leader, h
		}
	}
	v.leaders.n = len(v.hosts)
	return v
}

func (b *Builder) twoLevelBarrier() {
	v := b.levels(-1)
	if b.Rank != v.leader {
		b.Await(v.leader, b.Notify())
		return
	}
	if len(v.host) > 1 {
		b.Await(All, 1)
	}
	b.dissemination(v.leaders)
	b.Notify()
}

func (b *Builder) twoLevelBroadcast() {
	v := b.levels(b.Root)
	src := b.Out(0) // of a leader
	if b.Rank == b.Root {
		src = b.In(0)
		b.Copy(b.Count, src, b.Out(0))
	}
	x := b.broadcastThrough(v.leader, b.Count, src, b.Out(0))
	if b.Rank == v.leader {
		t := newTree(v.leaders, slices.Index(v.leaders.ranks, b.Root), 2)
		stage := x.write
		x.write = func(k, at int) {
			off, n := chunk(b.Count, x.slot, k)
			if t.parent >= 0 {
				b.Recv(t.at(t.parent), n, src.Plus(off))
				b.Wait()
			}
			b.sendAll(t, n, src.Plus(off))
			if len(v.host) > 1 {
				stage(k, at)
			}
			b.Wait()
		}
		x.readers = v.others(b.Rank)
	}
	b.exchange(x)
}

// others returns the other ranks of this host. There may be none.
func (v levels) others(rank int) []int {
	if len(v.host) == 1 {
		return nil
	}
	return allRanks
}

func (b *Builder) twoLevelReduce() {
	v := b.levels(b.Root)
	slot := b.slotSize(b.Count, slots)
	x := exchange{chunks: chunks(b.Count, slot), slot: slot, readers: []int{v.leader},
		write: func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			b.Copy(n, b.In(off), b.Stage(at))
		}}
	if b.Rank == v.leader {
		t := newTree(v.leaders, slices.Index(v.leaders.ranks, b.Root), 2)
		x.write, x.readers, x.sources = nil, nil, v.others(b.Rank)
		x.read = func(k, at int) {
			off, n := chunk(b.Count, slot, k)
			src := b.In(off)
			if len(v.host) > 1 {
				sum := b.Tmp(2 * slot) // beyond what treeReduce uses
				if b.Rank == b.Root {
					sum = b.Out(off)
				}
				b.Fold(n, false, b.stages(v.host, src, at), sum)
				src = sum
			}
			b.treeReduce(t, n, src, b.Out(off))
		}
	}
	b.exchange(x)
}

// twoLevelAllGather gathers each host's blocks on all its ranks, carries them
// around the ring of leaders, and hands the blocks of other hosts to the ranks
// of each.
func (b *Builder) twoLevelAllGather() {
	v, l := b.levels(-1), b.layout()
	b.Copy(l.size(b.Rank), b.In(0), b.Out(l.off(b.Rank)))
	alone := len(v.host) == 1
	if !alone {
		most := 0
		for _, r := range v.host {
			most = max(most, l.size(r))
		}
		slot := b.slotSize(most, slots)
		b.exchange(exchange{chunks: chunks(most, slot), slot: slot, sources: allRanks, readers: allRanks,
			write: func(k, at int) {
				off, n := chunk(l.size(b.Rank), slot, k)
				b.Copy(n, b.In(off), b.Stage(at))
			},
			read: func(k, at int) {
				for _, r := range v.host {
					if off, n := chunk(l.size(r), slot, k); r != b.Rank {
						b.Copy(n, b.Of(r, Stage, at), b.Out(l.off(r)+off))
					}
				}
			}})
	}
	if b.Rank == v.leader {
		g := v.leaders
		for s := range g.n - 1 {
			next, prev := g.rank(g.me+1), g.rank(g.me-1)
			eachRun(v.hosts[g.wrap(g.me-s)], l, func(off, n int) {
				b.eachPiece(n, func(o, k int) { b.Send(next, k, b.Out(off+o)) })
			})
			eachRun(v.hosts[g.wrap(g.me-s-1)], l, func(off, n int) {
				b.eachPiece(n, func(o, k int) { b.Recv(prev, k, b.Out(off+o)) })
			})
			b.Wait()
		}
	}
	if alone {
		return
	}
	b.Sync() // the slots of the first stream are free
	for h, ranks := range v.hosts {
		if h == v.leaders.me {
			continue
		}
		eachRun(ranks, l, func(off, n int) {
			b.exchange(b.broadcastThrough(v.leader, n, b.Out(off), b.Out(off)))
			b.Sync()
		})
	}
}

// eachRun calls f for the blocks of some ranks, neighbouring blocks together.
func eachRun(ranks []int, l layout, f func(off, n int)) {
	for i := 0; i < len(ranks); {
		j := i + 1
		for j < len(ranks) && ranks[j] == ranks[j-1]+1 {
			j++
		}
		first, end := ranks[i], ranks[j-1]+1
		f(l.off(first), l.span(first, end))
		i = j
	}
}
