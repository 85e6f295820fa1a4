package native

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// A rank that has finished a split's exchange of lists opens the memory that ranks of its host share in the new
// communicator. The others may still be in the exchange, and wait for ranks that cause the delay. So a rank whose wait
// for the opening times out asks them for which ranks they wait, asks these in turn, and so on.

// splitOrigin is the split that a new communicator comes from: operation seq of parent has exchanged the lists.
type splitOrigin struct {
	parent *group
	seq    uint64
	start  time.Time
}

// A stallError names the ranks that have kept a communicator's shared memory from being opened. Ranks are the fabric's.
type stallError struct {
	err     error
	missing []int          // at which the chains of waits end
	unknown []int          // without an answer
	doing   map[int]string // of those that are missing, what they do
}

func (e *stallError) Error() string { return e.err.Error() }
func (e *stallError) Unwrap() error { return e.err }

// attend puts the ranks, translated, into an attendance.
func (e *stallError) attend(a *backend.Attendance, rankOf func(peer int) int) {
	for _, p := range e.missing {
		a.Missing = append(a.Missing, rankOf(p))
		base.Note(&a.Doing, rankOf(p), e.doing[p])
	}
	for _, p := range e.unknown {
		a.Unknown = append(a.Unknown, rankOf(p))
	}
	slices.Sort(a.Missing)
	slices.Sort(a.Unknown)
}

// outside reports whether a rank that is named isn't a member of a communicator.
func (e *stallError) outside(rankOf func(peer int) int) bool {
	return slices.ContainsFunc(slices.Concat(e.missing, e.unknown), func(p int) bool { return rankOf(p) < 0 })
}

// failure is the split's error, on a rank that couldn't make its part of the new communicator. If what was to be split
// has broken while this rank asked, that's the cause.
func (o *splitOrigin) failure(ctx context.Context, err error) error {
	at := o.parent.In("split")
	if _, stalled := errors.AsType[*stallError](err); stalled && o.parent.Raised() {
		return o.parent.Err(at)
	}
	return unopened(ctx, o.start, at, o.parent.RankOf, err)
}

// explain finds out why members haven't opened their part, if that's what err says.
func (o *splitOrigin) explain(err error) error {
	absent, ok := errors.AsType[*fabric.AbsentError](err)
	if !ok {
		return err
	}
	g := o.parent
	var from []int
	for _, p := range absent.Peers {
		if r := g.RankOf(p); r >= 0 {
			from = append(from, r)
		}
	}
	ends, silent, doing := g.Stalled(o.seq, from)
	e := &stallError{err: err, doing: map[int]string{}}
	for _, r := range ends {
		e.missing = append(e.missing, g.Members[r])
		e.doing[g.Members[r]] = doing[r]
	}
	for _, r := range silent {
		e.unknown = append(e.unknown, g.Members[r])
	}
	return e
}
