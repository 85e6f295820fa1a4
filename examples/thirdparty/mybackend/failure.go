package mybackend

import (
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
)

// failure is a typed error of package backend in a form that travels: the same
// cause on every rank, to which each rank adds where it learned of it.
type failure struct {
	Is               string // one of the constants below
	Op               string // the operation that failed, if it was one
	Seq              uint64
	Rank             int // lost: who; aborted: by whom
	Text             string
	RankA, RankB     int
	OpA, OpB         string
	Elapsed          time.Duration
	Arrived, Missing []int
}

const (
	isMismatch = "mismatch"
	isTimeout  = "timeout"
	isLost     = "lost"
	isAborted  = "aborted"
	isEnded    = "ended" // this rank's own Finalize
)

// Error makes a failure the cause of a fabric.Abort.
func (f *failure) Error() string { return fmt.Sprintf("%s: %s", f.Is, f.Text) }

// at makes the error that the communicator returns.
func (f *failure) at(w backend.Where) error {
	if f.Op != "" {
		w.Op, w.Seq = f.Op, f.Seq
	}
	switch f.Is {
	case isMismatch:
		return &backend.MismatchError{Where: w, RankA: f.RankA, RankB: f.RankB, OpA: f.OpA, OpB: f.OpB}
	case isTimeout:
		return &backend.TimeoutError{Where: w, Attendance: backend.Attendance{Elapsed: f.Elapsed, Arrived: f.Arrived, Missing: f.Missing}}
	case isLost:
		return &backend.PeerLostError{Where: w, Peer: f.Rank, Cause: f.Text}
	case isAborted:
		return &backend.AbortedError{Where: w, By: f.Rank, Reason: f.Text}
	case isEnded:
		return &backend.FinalizedError{Where: w}
	}
	return &backend.InternalError{Where: w, Err: errors.New(f.Text)}
}
