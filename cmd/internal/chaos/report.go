package chaos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
)

// Report is what one rank says of a round.
type Report struct {
	Rank     int       `json:"rank"`
	Passed   int       `json:"passed"` // steps that succeeded
	Failures []Failure `json:"failures,omitempty"`
	Wrong    []string  `json:"wrong,omitempty"`   // results that were wrong though no error was
	Without  []int     `json:"without,omitempty"` // communicators that it should be a member of, but could not make
	Fired    int64     `json:"fired,omitempty"`   // when it made the fault happen, in nanoseconds since 1970

	Regrouped *Regrouped `json:"regrouped,omitempty"` // if it has tried to
}

// Failure is an error that a rank got.
type Failure struct {
	Comm  int    `json:"comm"`
	Step  int    `json:"step"` // -1: joining; the number of steps: leaving
	Kind  string `json:"kind"` // of the error, as in package comm
	Named []int  `json:"named,omitempty"`
	At    int64  `json:"at"` // nanoseconds since 1970
	Text  string `json:"text"`
}

// classify says what kind of error a rank of a communicator got, and which ranks of the world it names.
func classify(err error, g group) (kind string, named []int) {
	world := func(ranks ...int) []int {
		var all []int
		for _, r := range ranks {
			if r >= 0 && r < len(g.Members) {
				all = append(all, g.Members[r])
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	var mismatch *comm.MismatchError
	var late *comm.TimeoutError
	var lost *comm.PeerLostError
	var aborted *comm.AbortedError
	var panicked *comm.PanicError
	var missing *bootstrap.MissingRanksError
	switch {
	case errors.As(err, &aborted): // first: its cause may be an error of another communicator
		return "aborted", world(aborted.By)
	case errors.As(err, &panicked):
		return "aborted", world(panicked.Reporter)
	case errors.As(err, &mismatch):
		return "mismatch", world(mismatch.RankA, mismatch.RankB)
	case errors.As(err, &late):
		return "timeout", world(append(slices.Clone(late.Missing), late.Unknown...)...)
	case errors.As(err, &lost):
		return "lost", world(lost.Peer)
	case errors.As(err, &missing):
		return "missing", world(missing.Missing...)
	case errors.Is(err, comm.ErrUnsupported):
		return "unsupported", nil
	case errors.Is(err, comm.ErrInvalidArgument):
		return "invalid", nil
	case errors.Is(err, comm.ErrFinalized):
		return "finalized", nil
	case errors.Is(err, comm.ErrCanceled):
		return "canceled", nil
	case errors.Is(err, comm.ErrInternal):
		return "internal", nil
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline", nil
	}
	return "untyped", nil
}

// fail notes the error that a communicator, or an operation of it, gave the rank, which
// then uses that communicator no more, and tells the others if the library has not.
func (r *rank) fail(on, at int, err error) {
	kind, named := classify(err, r.p.Comms[on])
	r.report.Failures = append(r.report.Failures, Failure{Comm: on, Step: at, Kind: kind, Named: named,
		At: time.Now().UnixNano(), Text: err.Error()})
	r.broken[on] = true
	if c := r.comms[on]; c != nil && c.Err() == nil {
		c.Abort(err)
	}
	if !r.p.Fault.waits() {
		return
	}
	// A rank that is missing here is not waited for elsewhere.
	culprit := r.p.Fault.Rank
	if culprit == r.rank || !slices.Contains(named, culprit) {
		return
	}
	for other, c := range r.comms {
		if c != nil && !r.broken[other] && other != on && r.p.Comms[other].has(culprit) && c.Err() == nil {
			c.Abort(err)
		}
	}
}
