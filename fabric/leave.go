package fabric

import (
	"bytes"
	"fmt"
	"runtime"
	"time"
)

// LeftError reports that a member of a Space takes part in no further operation.
type LeftError struct {
	Peer  int
	After uint64 // the last operation that it has entered
	// Failed tells that it gave up in the middle of that operation, and not after its end.
	Failed bool
	// Why is the reason that it gave; may be empty. It's another process's text: any bytes, MaxWhy at most.
	Why string
}

// MaxWhy is how many bytes a member that leaves may say of the reason.
const MaxWhy = 200

func (e *LeftError) Error() string {
	if e.Failed {
		return fmt.Sprintf("rank %d has given up operation %d", e.Peer, e.After)
	}
	return fmt.Sprintf("rank %d has left after operation %d", e.Peer, e.After)
}

// A member's word "gone" is the last operation that it has entered<<2 | failed<<1 | 1.
func (s *Space) leftError(member int, gone uint64) error {
	e := &LeftError{Peer: s.members[member], After: gone >> 2, Failed: gone&2 != 0}
	why := s.blocks[member].why // a copy, which its owner can't change
	text, _, _ := bytes.Cut(why[:], []byte{0})
	e.Why = string(text)
	return e
}

// Leave ends this member's part for good. It must not read or write memory of the others any more. Their waits for
// steps that it has not done fail with *LeftError. failed says that something went wrong; otherwise the member must
// be between two operations. why is the reason that the errors state. It may be empty, and is cut at MaxWhy bytes.
func (s *Space) Leave(failed bool, why string) {
	me := s.blocks[s.self]
	if me.gone.Load() != 0 {
		return
	}
	gone := s.seq<<2 | 1
	if failed {
		gone |= 2
	}
	copy(me.why[:], why) // before the word that says that it's there
	me.gone.Store(gone)
	if failed && s.underWay() {
		// Once the flag is reset, no member begins to use this one's buffers that hasn't yet. It
		// costs the others nothing: they wait for the flag, and that wait ends when it sees that
		// this member has left.
		me.slots[s.seq%slots].flag.Store(0)
	}
	if s.waiters != nil && me.sleepers.Load() != 0 {
		s.waiters.wake() // a sleeper on a futex looks by itself
	}
}

// HasLeft reports whether a member has left.
func (s *Space) HasLeft(member int) bool { return s.blocks[member].gone.Load() != 0 }

// underWay reports whether this member is between Begin and End.
func (s *Space) underWay() bool { return s.blocks[s.self].ended.Load() < s.seq }

// Settle waits, after Leave(true), until no other member touches the buffers that this
// one has announced in the operation which it gave up. lost reports members that have died. It
// returns the ranks that may still touch the buffers after the limit.
//
// A member that arrives later finds the flag reset, and begins nothing. Each of two members writes
// its own flag before it reads the other's, so at least one of them sees the other's. When Settle
// reads, every flag that was written before it began is visible to all. A member that arrived
// before says when it has ended the operation, or left.
func (s *Space) Settle(limit time.Duration, lost func(rank int) bool) (unsettled []int) {
	if !s.underWay() {
		return nil
	}
	if s.waiters == nil {
		time.Sleep(settlePause) // a store is on its way for less than a microsecond: see raise
	}
	var deadline time.Time
	for m, b := range s.blocks {
		if m == s.self {
			continue
		}
		busy := func() bool {
			return b.slots[s.seq%slots].flag.Load()>>24 >= s.seq && b.ended.Load() < s.seq && b.gone.Load() == 0
		}
		for i := 1; busy(); i++ {
			if i < settleYields {
				runtime.Gosched()
				continue
			}
			if deadline.IsZero() {
				deadline = time.Now().Add(limit)
			}
			if lost(s.members[m]) {
				break
			}
			if time.Now().After(deadline) {
				unsettled = append(unsettled, s.members[m])
				break
			}
			time.Sleep(settlePause)
		}
	}
	return unsettled
}

// A member that waits notices within microseconds. One that is in a step notices at its end, which
// may be the time of copying all its data. By then no caller needs a quick answer.
const (
	settleYields = 100
	settlePause  = 100 * time.Microsecond
)
