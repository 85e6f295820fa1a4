package plan

import "slices"

// The two-level all-to-all. A pairwise exchange sends a message for each two ranks of different hosts, one after the
// other. Here the ranks of a host hand their blocks for rank j of any other host to one of them, the carrier, which
// sends them together. So each host sends each rank of another host one message, all of them at once, and it arrives
// where its blocks belong. That costs two copies of each block within the host. Large blocks are worth a message each:
// they go straight to their ranks, host after host.

// packedBlock is the size in bytes up to which blocks are put together: where two copies, at some 10 GB/s when they
// miss the nearest caches, take as long as a message of its own.
const packedBlock = 16 << 10

func init() {
	builtin(Algorithm{Name: "two_level", Collective: AllToAll,
		Doc: "stages on each host, one message from each to each rank of another", Tags: []string{"hosts"},
		OneSided: true, Cost: costTwoLevelAllToAll,
		Supports: func(q Request) error {
			if err := evenOnly(q); err != nil {
				return err
			}
			return twoLevels(q)
		}}, (*Builder).twoLevelAllToAll)
}

// packs reports whether the blocks of an all-to-all in two levels are put together, for which all of them have room in
// the stage.
func (q Request) packs() bool {
	return q.Count*q.ElemSize <= packedBlock && q.Count*q.ElemSize*q.World <= q.StageBytes
}

// carrier returns the rank of host h that speaks for it with rank j of another host.
func (v levels) carrier(h, j int) int { return v.hosts[h][j%len(v.hosts[h])] }

func (b *Builder) twoLevelAllToAll() {
	if b.Count == 0 {
		return
	}
	if v := b.levels(-1); b.packs() {
		b.packedAllToAll(v)
	} else {
		b.straightAllToAll(v)
	}
}

// packedAllToAll has one place for each rank of the world in every stage. There the blocks for rank j of a host lie for
// the carrier that exchanges with it; on this host that is rank j itself.
func (b *Builder) packedAllToAll(v levels) {
	n, here, alone := b.Count, v.leaders, len(v.host) == 1
	mine := slices.Index(v.host, b.Rank)
	if !alone {
		b.needStage(b.World * n)
		var others []int // ranks with which another one of this host exchanges
		for _, ranks := range v.hosts {
			for j, t := range ranks {
				if v.carrier(here.me, j) != b.Rank {
					others = append(others, t)
				}
			}
		}
		slices.Sort(others)
		eachRun(others, layout{each: n}, func(off, size int) { b.Copy(size, b.In(off), b.Stage(off)) })
		b.Sync()
	}
	// If In is Out, all that is sent is taken out of it before anything arrives there.
	type message struct {
		to  int
		src Ref
	}
	var messages []message
	packed := 0
	for s := 1; s < here.n; s++ {
		for j, t := range v.hosts[here.wrap(here.me+s)] {
			if v.carrier(here.me, j) != b.Rank {
				continue
			}
			if alone && !b.InPlace {
				messages = append(messages, message{t, b.In(t * n)})
				continue
			}
			messages = append(messages, message{t, b.Tmp(packed)})
			for _, src := range b.stages(v.host, b.In(t*n), t*n) {
				b.Copy(n, src, b.Tmp(packed))
				packed += n
			}
		}
	}
	var unpack []func()
	for s := 1; s < here.n; s++ {
		from := here.wrap(here.me - s)
		ranks, carrier := v.hosts[from], v.carrier(from, mine)
		first, size := ranks[0], len(ranks)*n
		if ranks[len(ranks)-1] == first+len(ranks)-1 {
			b.Recv(carrier, size, b.Out(first*n))
			continue
		}
		at := packed // neighbors in the message are none in Out
		packed += size
		b.Recv(carrier, size, b.Tmp(at))
		unpack = append(unpack, func() {
			for i, r := range ranks {
				b.Copy(n, b.Tmp(at+i*n), b.Out(r*n))
			}
		})
	}
	for _, m := range messages {
		b.Send(m.to, len(v.host)*n, m.src)
	}
	b.Copy(n, b.In(b.Rank*n), b.Out(b.Rank*n)) // what stays here, while the messages are on their way
	for i := 1; i < len(v.host); i++ {
		r := v.host[(mine+i)%len(v.host)]
		b.Copy(n, b.Of(r, Stage, b.Rank*n), b.Out(r*n))
	}
	b.Wait()
	for _, f := range unpack {
		f()
	}
}

// straightAllToAll sends every block to its rank, those for one host at the same time; what stays on this one goes
// through the stages meanwhile.
func (b *Builder) straightAllToAll(v levels) {
	n, here := b.Count, v.leaders
	from := b.In
	if b.InPlace {
		from = b.Tmp
		for h, ranks := range v.hosts {
			if h != here.me {
				eachRun(ranks, layout{each: n}, func(off, size int) { b.Copy(size, b.In(off), b.Tmp(off)) })
			}
		}
	}
	for s := 1; s < here.n; s++ {
		for _, r := range v.hosts[here.wrap(here.me-s)] {
			b.eachPiece(n, func(o, k int) { b.Recv(r, k, b.Out(r*n+o)) })
		}
		for _, t := range v.hosts[here.wrap(here.me+s)] {
			b.eachPiece(n, func(o, k int) { b.Send(t, k, from(t*n+o)) })
		}
		if s == 1 {
			b.Copy(n, b.In(b.Rank*n), b.Out(b.Rank*n))
			if len(v.host) > 1 {
				b.exchangeOnHost(v.host)
			}
		}
		b.Wait()
	}
}

// exchangeOnHost is a staged all-to-all of the ranks of this host.
func (b *Builder) exchangeOnHost(ranks []int) {
	n, mine := b.Count, slices.Index(ranks, b.Rank)
	share, count := b.sharesOf(n, len(ranks))
	b.exchange(exchange{chunks: count, slot: share * len(ranks), sources: allRanks, readers: allRanks,
		write: func(k, at int) {
			off, size := chunk(n, share, k)
			for i := 1; i < len(ranks); i++ {
				j := (mine + i) % len(ranks)
				b.Copy(size, b.In(ranks[j]*n+off), b.Stage(at+j*share))
			}
		},
		read: func(k, at int) {
			off, size := chunk(n, share, k)
			for i := 1; i < len(ranks); i++ {
				r := ranks[(mine+i)%len(ranks)]
				b.Copy(size, b.Of(r, Stage, at+mine*share), b.Out(r*n+off))
			}
		}})
}
