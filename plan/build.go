package plan

import "slices"

// Builder collects the steps of one rank. A generator receives one from Build,
// reads the request in it and calls its methods in the order of the steps.
// Messages, copies and folds of no elements are left out, so that a generator
// need not treat empty blocks apart; both ends of a message agree on that.
type Builder struct {
	Request
	plan  Plan
	refs  []Ref // backing memory of the steps' places
	phase uint32
}

// Build runs a generator for one rank and returns the plan that it wrote. A
// world of one needs no algorithm: its plan copies In to Out.
func Build(algorithm string, q Request, generate func(*Builder)) (*Plan, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	b := &Builder{Request: q}
	b.plan.Algorithm, b.plan.Request = algorithm, q
	if q.World == 1 {
		in, _ := q.Sizes()
		b.Copy(in, b.In(0), b.Out(0))
	} else {
		generate(b)
	}
	return &b.plan, nil
}

// In, Out, Tmp and Stage name places in this rank's own memory.
func (b *Builder) In(off int) Ref    { return Ref{In, int32(b.Rank), off} }
func (b *Builder) Out(off int) Ref   { return Ref{Out, int32(b.Rank), off} }
func (b *Builder) Tmp(off int) Ref   { return Ref{Tmp, int32(b.Rank), off} }
func (b *Builder) Stage(off int) Ref { return Ref{Stage, int32(b.Rank), off} }

// Of names a place in the memory of any rank of this host.
func (b *Builder) Of(rank int, buf Buf, off int) Ref { return Ref{buf, int32(rank), off} }

// Plus returns the place n elements further on.
func (r Ref) Plus(n int) Ref { r.Off += n; return r }

// Mapped declares that ranks refer to each other's In or Out. Every rank of the
// plan must say so, also one whose own steps do not.
func (b *Builder) Mapped() { b.plan.Mapped = true }

// Send posts n elements to peer.
func (b *Builder) Send(peer, n int, src Ref) {
	if n > 0 {
		b.add(Step{Kind: Send, Peer: int32(peer), N: n, Src: b.places(n, src)})
	}
}

// Recv posts a receive of n elements from peer.
func (b *Builder) Recv(peer, n int, dst Ref) {
	if n > 0 {
		b.add(Step{Kind: Recv, Peer: int32(peer), N: n, Dst: b.places(n, dst)})
	}
}

// RecvReduce posts a receive of n elements that sets dst to src ⊕ received.
func (b *Builder) RecvReduce(peer, n int, src, dst Ref, final bool) {
	if n > 0 {
		b.add(Step{Kind: RecvReduce, Peer: int32(peer), N: n, Src: b.places(n, src), Dst: b.places(n, dst), Final: final})
	}
}

// SendToken posts an empty message to peer: what two-sided barriers are made of.
func (b *Builder) SendToken(peer int) {
	b.add(Step{Kind: Send, Peer: int32(peer), Src: b.places(0, b.Tmp(0))})
}

// RecvToken posts the receive of an empty message.
func (b *Builder) RecvToken(peer int) {
	b.add(Step{Kind: Recv, Peer: int32(peer), Dst: b.places(0, b.Tmp(0))})
}

// Wait completes what was posted since the last Wait, if anything was.
func (b *Builder) Wait() {
	for i := len(b.plan.Steps) - 1; i >= 0; i-- {
		switch b.plan.Steps[i].Kind {
		case Wait:
			return
		case Send, Recv, RecvReduce:
			b.add(Step{Kind: Wait})
			return
		}
	}
}

// Copy copies n elements from src to every dst that is another place than src.
func (b *Builder) Copy(n int, src Ref, dst ...Ref) {
	if n == 0 {
		return
	}
	from := b.home(src)
	keep := make([]Ref, 0, 4)
	for _, d := range dst {
		if b.home(d) != from {
			keep = append(keep, d)
		}
	}
	if len(keep) > 0 {
		b.add(Step{Kind: Copy, N: n, Src: b.places(n, src), Dst: b.places(n, keep...)})
	}
}

// Fold sets every dst to src[0] ⊕ src[1] ⊕ ..., n elements.
func (b *Builder) Fold(n int, final bool, src []Ref, dst ...Ref) {
	if n > 0 {
		b.add(Step{Kind: Fold, N: n, Final: final, Src: b.places(n, src...), Dst: b.places(n, dst...)})
	}
}

// Notify raises this rank's phase by one and returns it.
func (b *Builder) Notify() uint32 {
	b.phase++
	b.add(Step{Kind: Notify, Phase: b.phase})
	return b.phase
}

// Await blocks until peer (or All) has reached a phase.
func (b *Builder) Await(peer int, phase uint32) {
	if phase > 0 {
		b.add(Step{Kind: Await, Peer: int32(peer), Phase: phase})
	}
}

// Sync is a barrier of the host: Notify, then Await all.
func (b *Builder) Sync() { b.Await(All, b.Notify()) }

func (b *Builder) add(s Step) { b.plan.Steps = append(b.plan.Steps, s) }

// places stores refs of n elements each and grows the scratch that they need.
func (b *Builder) places(n int, refs ...Ref) []Ref {
	for _, r := range refs {
		switch r.Buf {
		case Tmp:
			b.plan.Tmp = max(b.plan.Tmp, r.Off+n)
		case Stage:
			b.plan.Stage = max(b.plan.Stage, r.Off+n)
		}
	}
	if len(b.refs)+len(refs) > cap(b.refs) {
		b.refs = make([]Ref, 0, max(32, 2*cap(b.refs), len(refs)))
	}
	at := len(b.refs)
	b.refs = append(b.refs, refs...)
	return slices.Clip(b.refs[at:])
}

// needStage declares n elements of stage, so that all ranks name the same size.
func (b *Builder) needStage(n int) { b.plan.Stage = max(b.plan.Stage, n) }

// eachPiece calls f for the pipeline pieces of a message of n elements.
func (b *Builder) eachPiece(n int, f func(off, size int)) {
	piece := b.piece(n)
	for off := 0; off < n; off += piece {
		f(off, min(piece, n-off))
	}
}

// group is an ordered set of ranks that run a two-sided algorithm among
// themselves.
type group struct {
	ranks []int // nil: the whole world in order
	me, n int
}

func (b *Builder) world() group { return group{me: b.Rank, n: b.World} }

func newGroup(ranks []int, rank int) group {
	return group{ranks: ranks, me: slices.Index(ranks, rank), n: len(ranks)}
}

// rank returns the world rank of member i, counted around the group.
func (g group) rank(i int) int {
	i = g.wrap(i)
	if g.ranks != nil {
		return g.ranks[i]
	}
	return i
}

func (g group) wrap(i int) int { return ((i % g.n) + g.n) % g.n }
