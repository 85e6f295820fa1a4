package plan

import "fmt"

// A split all-reduce divides every chunk among the ranks of a host: each reduces
// its part of all stages and offers the result in its own stage. When there are
// several hosts, the ranks that own the same part on each of them combine their
// results before they offer them. With one host this is a staged reduce-scatter
// and all-gather; with several it is the two-level all-reduce with as many
// leaders per host as the smallest host has ranks.

const (
	splitChunk = 512 << 10 // so that a ring of slots is larger than the nearest caches: see turning in package fabric
	splitSlots = 3         // a chunk is copied in, the one before reduced, the one before that copied out
	smallWire  = 16 << 10  // up to here hosts exchange by recursive doubling, beyond by rings
)

func init() {
	builtin(Algorithm{Name: "staged_split", Collective: AllReduce,
		Doc:  "each rank copies in, reduces its part of all stages, copies the rest out",
		Tags: []string{"one-sided", "ordinary", "large"}, OneSided: true, OneHost: true, Supports: splitFits},
		(*Builder).splitAllReduce)
	builtin(Algorithm{Name: "two_level", Collective: AllReduce,
		Doc:  "one-sided on each host, rings or doubling between hosts, several leaders per host",
		Tags: []string{"hosts"}, OneSided: true, Supports: twoLevels},
		(*Builder).splitAllReduce)
}

func splitFits(q Request) error {
	if need := splitSlots * max(line, q.ElemSize); q.StageBytes < need {
		return fmt.Errorf("it needs %d bytes of shared scratch on each rank, and there are %d", need, q.StageBytes)
	}
	return nil
}

func (b *Builder) splitAllReduce() {
	hosts := b.Topo.groups(b.World)
	host := hosts[0]
	owners := b.World // of a chunk, on each host
	for _, ranks := range hosts {
		owners = min(owners, len(ranks))
		if contains(ranks, b.Rank) {
			host = ranks
		}
	}
	me := newGroup(host, b.Rank).me
	alone := len(host) == 1
	owner := me < owners
	between := group{n: len(hosts)} // the owners of my part on all hosts
	if owner {
		for h, ranks := range hosts {
			between.ranks = append(between.ranks, ranks[me])
			if ranks[me] == b.Rank {
				between.me = h
			}
		}
	}

	slot := b.splitSlot()
	count := chunks(b.Count, slot)
	// part returns the place of owner o's part of chunk k: in the vector, in the
	// stages, and its size.
	part := func(k, o int) (off, at, n int) {
		start, whole := chunk(b.Count, slot, k)
		off, n = cut(whole, owners, o, b.perLine())
		return start + off, k%splitSlots*slot + off, n
	}
	copyIn := func(k int) {
		for o := range owners {
			if off, at, n := part(k, o); o != me && !alone {
				b.Copy(n, b.In(off), b.Stage(at))
			}
		}
	}
	reduce := func(k int) {
		off, at, n := part(k, me)
		sum := b.In(off)
		if !alone {
			to := []Ref{b.Out(off)}
			if len(hosts) == 1 {
				to = append(to, b.Stage(at))
			}
			b.Fold(n, len(hosts) == 1, b.stages(host, b.In(off), at), to...)
			sum = b.Out(off)
		}
		if len(hosts) > 1 {
			b.betweenHosts(between, n, sum, b.Out(off))
			if !alone {
				b.Copy(n, b.Out(off), b.Stage(at))
			}
		}
	}
	copyOut := func(k int) {
		for i := range owners {
			o := (me + i) % owners
			if off, at, n := part(k, o); o != me {
				b.Copy(n, b.Of(host[o], Stage, at), b.Out(off))
			}
		}
	}

	if count == 0 {
		return
	}
	if !alone {
		b.needStage(min(count, splitSlots) * slot)
	}
	for i := range count + 2 {
		if i > 0 && !alone {
			b.Sync()
		}
		if i < count {
			copyIn(i)
		}
		if k := i - 1; owner && k >= 0 && k < count {
			reduce(k)
		}
		if k := i - 2; k >= 0 {
			copyOut(k)
		}
	}
}

// splitSlot returns the elements of a chunk.
func (b *Builder) splitSlot() int {
	room := b.StageBytes / b.ElemSize
	piece := b.elems(splitChunk)
	if b.Topo.Hosts(b.World) > 1 {
		piece = b.elems(wireChunk) // the way between the hosts decides
	}
	if b.Count <= min(room, piece) {
		return max(1, b.Count)
	}
	size := min(piece, room/splitSlots)
	if per := b.perLine(); size > per {
		size -= size % per
	}
	return size
}

// betweenHosts all-reduces n elements among the ranks of a group.
func (b *Builder) betweenHosts(g group, n int, src, dst Ref) {
	if n*b.ElemSize <= smallWire {
		b.doublingAllReduce(g, n, src, dst)
	} else {
		b.ringAllReduce(g, n, src, dst)
	}
}

func contains(ranks []int, r int) bool { return newGroup(ranks, r).me >= 0 }
