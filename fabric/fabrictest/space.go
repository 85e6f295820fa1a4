package fabrictest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// sharing opens a world whose ranks share memory, or skips the case.
func (s *suite) sharing(t *testing.T, size int) []*rank {
	ranks := s.world(t, size)
	for _, r := range ranks {
		if sh, ok := r.bare.(fabric.Sharer); !ok || sh.Hosts()[r.Rank()] != 0 {
			t.Skip("the ranks share no memory")
		}
	}
	return ranks
}

func (r *rank) space(comm uint32, members []int, stage int) *fabric.Space {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sp, err := r.bare.(fabric.Sharer).Space(ctx, comm, members, stage)
	must(err)
	if n := len(members); len(sp.Members()) != n || sp.Members()[sp.Self()] != r.Rank() {
		fail("space of %v: members %v, self %d", members, sp.Members(), sp.Self())
	}
	must(sp.Reserve(sp.StageBytes() / 3))
	must(sp.Reserve(sp.StageBytes()))
	return sp
}

var noPlace fabric.Place

// testSpace opens several spaces, uses them in turn, and opens one again.
func testSpace(t *testing.T, s *suite) {
	each(t, s.sharing(t, 3), func(r *rank) {
		barrier := func(sp *fabric.Space, seq uint64) {
			r.w.Begin(nil, patience)
			must(sp.Begin(r.w, seq, &fabric.Desc{1}, noPlace, noPlace))
			sp.Arrive()
			must(sp.AwaitAll(r.w, 0))
			for m := range sp.Members() {
				if got, _ := sp.Arrived(m); got < seq {
					fail("member %d has arrived at %d in operation %d", m, got, seq)
				}
			}
			sp.End()
		}
		for range 2 {
			all := r.space(1, []int{0, 1, 2}, 4096)
			if all.StageBytes() < 2048-64 || all.StageBytes() > 2048 || uintptr(all.Stage(all.Self(),
				all.StageBytes()))%64 != 0 {
				fail("stage of %d bytes at %p", all.StageBytes(), all.Stage(all.Self(), all.StageBytes()))
			}
			var pair *fabric.Space
			if r.Rank() != 1 {
				pair = r.space(2, []int{0, 2}, 0)
			}
			for seq := range uint64(20) {
				barrier(all, seq+1)
				if pair != nil {
					barrier(pair, seq+1)
				}
			}
			must(all.Close())
			if pair != nil {
				must(pair.Close())
			}
			r.meet(0)
		}
	})
}

// Kinds of operation of testSpaceRandom. They differ in which member waits for which, and so in how
// far members can be ahead of each other.
const (
	exchangeInline = iota // all read what all wrote beside their flags
	exchangeStage         // all read all stages
	fromRoot              // all read the root's stage; the root doesn't wait
	toRoot                // the root reads all stages; the others don't wait
	pipeline              // the root's stage in pieces, each with a phase of its own
	barrier
	kinds
)

// testSpaceRandom runs thousands of operations of random kinds. Every byte that a member reads is
// checked, which would show a slot or stage that is overwritten too early.
func testSpaceRandom(t *testing.T, s *suite) {
	const members, stage = 3, 2 * 1024
	ops := uint64(4000)
	if testing.Short() {
		ops = 500
	}
	each(t, s.sharing(t, members), func(r *rank) {
		sp := r.space(1, []int{0, 1, 2}, stage)
		self := sp.Self()
		rng := rand.New(rand.NewPCG(7, 7)) // the same on all members
		own := rand.New(rand.NewPCG(8, uint64(self)))
		id := func(seq uint64, m int) int { return int(seq)*members + m }
		bytes := func(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }
		for seq := uint64(1); seq <= ops; seq++ {
			kind, root, n := rng.IntN(kinds), rng.IntN(members), 1+rng.IntN(sp.StageBytes()/4)
			r.w.Begin(nil, patience)
			must(sp.Begin(r.w, seq, &fabric.Desc{byte(kind), byte(seq)}, noPlace, noPlace))
			if own.IntN(8) == 0 {
				for range own.IntN(50) {
					runtime.Gosched()
				}
			}
			write := func() { fill(bytes(sp.Stage(self, n), n), id(seq, self)) }
			read := func(m int) { verify(bytes(sp.Stage(m, n), n), id(seq, m)) }
			switch kind {
			case exchangeInline:
				fill(bytes(sp.Inline(self), fabric.InlineBytes), id(seq, self))
				sp.Arrive()
				must(sp.AwaitAll(r.w, 0))
				for m := range members {
					verify(bytes(sp.Inline(m), fabric.InlineBytes), id(seq, m))
				}
			case exchangeStage:
				sp.Arrive()
				write()
				sp.Notify(1)
				must(sp.AwaitAll(r.w, 1))
				for m := range members {
					read(m)
				}
			case fromRoot:
				if self == root {
					write()
					sp.Notify(1)
				} else {
					sp.Arrive()
					must(sp.Await(r.w, root, 1))
					read(root)
				}
			case toRoot:
				write()
				sp.Notify(1)
				if self == root {
					must(sp.AwaitAll(r.w, 1))
					for m := range members {
						read(m)
					}
				}
			case pipeline:
				for piece := range 4 {
					p := bytes(unsafe.Add(sp.Stage(root, 4*n), piece*n), n)
					if self == root {
						fill(p, id(seq, piece))
						sp.Notify(uint32(piece + 1))
					} else {
						must(sp.Await(r.w, root, uint32(piece+1)))
						verify(p, id(seq, piece))
					}
				}
			case barrier:
				sp.Arrive()
				must(sp.AwaitAll(r.w, 0))
			}
			sp.End()
		}
		must(sp.Close())
	})
}

// testSpaceMismatch has one member in another operation.
func testSpaceMismatch(t *testing.T, s *suite) {
	each(t, s.sharing(t, 3), func(r *rank) {
		sp := r.space(1, []int{0, 1, 2}, 0)
		descs := []fabric.Desc{{4, 4}, {4, 5}, {4, 4}}
		r.w.Begin(nil, patience)
		must(sp.Begin(r.w, 1, &descs[r.Rank()], noPlace, noPlace))
		sp.Arrive()
		for m := range descs {
			err := sp.Await(r.w, m, 0)
			if descs[m] == descs[r.Rank()] {
				must(err)
				continue
			}
			var mm *fabric.MismatchError
			if !errors.As(err, &mm) || mm.Peer != m || mm.Local != descs[r.Rank()] || mm.Remote != descs[m] {
				fail("member %d: %v", m, err)
			}
		}
		sp.End()
		r.meet(0)
		must(sp.Close())
	})
}

// testSpaceGivesUp ends waits by timeout, context and abort.
func testSpaceGivesUp(t *testing.T, s *suite) {
	each(t, s.sharing(t, 2), func(r *rank) {
		sp := r.space(1, []int{0, 1}, 0)
		if r.Rank() == 1 {
			r.hear(0, 0)
		}
		r.w.Begin(nil, patience)
		must(sp.Begin(r.w, 1, &fabric.Desc{1}, noPlace, noPlace))
		sp.Arrive()
		if r.Rank() == 0 {
			r.w.Begin(nil, time.Millisecond)
			if err := sp.Await(r.w, 1, 0); !errors.Is(err, fabric.ErrTimeout) {
				fail("after the timeout: %v", err)
			}
			cause := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(context.Background())
			go cancel(cause)
			r.w.Begin(ctx, patience)
			if err := sp.Await(r.w, 1, 0); !errors.Is(err, cause) {
				fail("after the cancellation: %v", err)
			}
			broken := newWaiter()
			broken.Begin(nil, patience)
			go broken.Abort.Raise(cause)
			if err := sp.Await(broken, 1, 0); !errors.Is(err, cause) {
				fail("after the abort: %v", err)
			}
			if seq, _ := sp.Arrived(1); seq != 0 {
				fail("member 1 has arrived at %d", seq)
			}
			r.tell(1, 0)
		}
		r.w.Begin(nil, patience)
		must(sp.AwaitAll(r.w, 0))
		sp.End()
		must(sp.Close())
	})
}

// testSpacePlaces lets members write into each other's buffers.
func testSpacePlaces(t *testing.T, s *suite) {
	ranks := s.sharing(t, 3)
	each(t, ranks, func(r *rank) {
		sp := r.space(1, []int{0, 1, 2}, 0)
		placer, ok := r.bare.(fabric.Placer)
		if !ok {
			return
		}
		if placer.Place(nil, 0).Mappable() {
			fail("nowhere has a place")
		}
		for round := range uint64(5) {
			in, out := s.alloc(r.bare, 10_000), s.alloc(r.bare, 300)
			fill(in, r.Rank())
			pin, pout := placer.Place(unsafe.Pointer(&in[0]), len(in)), placer.Place(unsafe.Pointer(&out[0]), len(out))
			if !pin.Mappable() || !pout.Mappable() {
				fail("memory for mapping has no place")
			}
			r.w.Begin(nil, patience)
			must(sp.Begin(r.w, round+1, &fabric.Desc{3}, pin, pout))
			sp.Notify(1)
			must(sp.AwaitAll(r.w, 1))
			for m := range ranks {
				theirs, put := sp.Places(m)
				src, err := sp.Resolve(r.w, m, theirs, len(in))
				must(err)
				verify(unsafe.Slice((*byte)(src), len(in)), m)
				dst, err := sp.Resolve(r.w, m, put, len(out))
				must(err)
				fill(unsafe.Slice((*byte)(dst), len(out))[100*sp.Self():][:100], 10*m+sp.Self())
			}
			sp.Notify(2)
			must(sp.AwaitAll(r.w, 2))
			for m := range ranks {
				verify(out[100*m:][:100], 10*sp.Self()+m)
			}
			sp.End()
			runtime.KeepAlive(in)
		}
		for _, p := range []fabric.Place{{}, {Segment: 1 << 40, Offset: 8}} {
			if _, err := sp.Resolve(r.w, 0, p, 1); err == nil {
				fail("%+v was resolved", p)
			}
		}
		r.meet(0)
		must(sp.Close())
	})
}
