package fabrictest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// begin enters an operation.
func (r *rank) begin(sp *fabric.Space, seq uint64, desc byte) {
	r.w.Begin(nil, patience)
	must(sp.Begin(r.w, seq, &fabric.Desc{desc}, noPlace, noPlace))
}

func (r *rank) hasLeft(sp *fabric.Space, err error, peer int, after uint64, failed bool) {
	var left *fabric.LeftError
	if !errors.As(err, &left) || left.Peer != peer || left.After != after || left.Failed != failed {
		fail("rank %d has left after operation %d, but a wait gives %v", peer, after, err)
	}
	if seq, _ := sp.Arrived(peer); seq != after {
		fail("rank %d is said to have arrived at %d, not %d", peer, seq, after)
	}
}

// testSpaceLeave has a member leave between operations: those that it took part in are
// finished, and every wait for it in later ones ends.
func testSpaceLeave(t *testing.T, s *suite) {
	each(t, s.sharing(t, 3), func(r *rank) {
		sp := r.space(1, []int{0, 1, 2}, 0)
		r.begin(sp, 1, 1)
		sp.Arrive()
		if r.Rank() == 2 {
			must(sp.AwaitAll(r.w, 0))
			sp.End()
			sp.Leave(false, "")
			if got := sp.Settle(0, func(int) bool { return false }); got != nil {
				fail("ranks %v use buffers of a rank between operations", got)
			}
			r.tell(0, 0)
			r.tell(1, 0)
		} else {
			r.hear(2, 0)
			must(sp.AwaitAll(r.w, 0))
			sp.End()
			// Operations that wait for no member, until Begin waits for the member that left.
			r.begin(sp, 2, 1)
			sp.Arrive()
			r.hasLeft(sp, sp.Await(r.w, 2, 0), 2, 1, false)
			sp.End()
			r.begin(sp, 3, 1)
			sp.End()
			r.w.Begin(nil, patience)
			r.hasLeft(sp, sp.Begin(r.w, 4, &fabric.Desc{1}, noPlace, noPlace), 2, 1, false)
		}
		r.meet(1)
		must(sp.Close())
	})
}

// testSpaceGivenUp has a member give up in the middle of an operation: it learns which members may
// be using its buffers, and no other begins to.
func testSpaceGivenUp(t *testing.T, s *suite) {
	each(t, s.sharing(t, 3), func(r *rank) {
		sp := r.space(1, []int{0, 1, 2}, 0)
		nobody := func(int) bool { return false }
		switch r.Rank() {
		case 0:
			r.begin(sp, 1, 1)
			sp.Notify(1)
			must(sp.Await(r.w, 1, 1))
			r.hear(1, 0) // it has seen this rank's flag
			sp.Leave(true, "")
			if got := sp.Settle(time.Millisecond, nobody); !slices.Equal(got, []int{1}) {
				fail("ranks %v use this one's buffers, not rank 1", got)
			}
			if got := sp.Settle(0, func(rank int) bool { return rank == 1 }); got != nil {
				fail("ranks %v use this one's buffers, although rank 1 is lost", got)
			}
			r.tell(1, 1)
			r.tell(2, 1)
			if got := sp.Settle(patience, nobody); got != nil {
				fail("ranks %v use this one's buffers", got)
			}
		case 1:
			r.begin(sp, 1, 1)
			sp.Notify(1)
			must(sp.Await(r.w, 0, 1))
			r.tell(0, 0)
			r.hear(0, 1)
			r.hasLeft(sp, sp.Await(r.w, 0, 2), 0, 1, true)
			sp.Leave(true, "")
			if got := sp.Settle(patience, nobody); got != nil {
				fail("ranks %v use this one's buffers", got)
			}
		case 2:
			r.hear(0, 1)
			r.begin(sp, 1, 1)
			sp.Notify(1)
			r.hasLeft(sp, sp.Await(r.w, 0, 1), 0, 1, true)
			sp.Leave(true, "")
		}
		r.meet(2)
		must(sp.Close())
	})
}

// testSpaceCheckLast has members disagree about their last operation, or the one before,
// in which none waits for the other: the later one finds out.
func testSpaceCheckLast(t *testing.T, s *suite) {
	each(t, s.sharing(t, 2), func(r *rank) {
		for round, differs := range []uint64{4, 5} {
			sp := r.space(uint32(1+round), []int{0, 1}, 0)
			must(sp.CheckLast())
			run := func(seq uint64, wait bool) {
				desc := byte(1)
				if seq == differs {
					desc += byte(r.Rank())
				}
				r.begin(sp, seq, desc)
				sp.Arrive()
				if wait {
					must(sp.AwaitAll(r.w, 0))
				}
				sp.End()
			}
			for seq := range uint64(3) {
				run(seq+1, true)
			}
			if r.Rank() == 1 {
				r.hear(0, round)
			}
			run(4, false)
			run(5, false)
			if r.Rank() == 0 {
				must(sp.CheckLast())
				r.tell(1, round)
			} else {
				var mm *fabric.MismatchError
				if err := sp.CheckLast(); !errors.As(err, &mm) || mm.Peer != 0 || mm.Seq != differs {
					fail("operation %d differs, but the last look gives %v", differs, err)
				}
			}
			r.meet(10 + round)
			must(sp.Close())
		}
	})
}
