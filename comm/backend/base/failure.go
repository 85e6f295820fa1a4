package base

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// Failure is the end of a communicator in a form that travels, as JSON: the same cause on every rank, to which each
// adds where it learned of it. Ranks in it are the communicator's.
type Failure struct {
	Kind string `json:"k"`           // one of the constants below
	Seq  uint64 `json:"s,omitempty"` // the operation
	Op   string `json:"o,omitempty"`
	Rank int    `json:"r"`            // lost: who; mismatch, timeout: who found it; abort: whose doing it is
	By   int    `json:"b,omitempty"`  // lost: who found it
	Text string `json:"t,omitempty"`  // reason
	From uint64 `json:"fr,omitempty"` // the first operation that fails for it; 0: all that are under way
	// mismatch
	RankA int    `json:"ra,omitempty"`
	RankB int    `json:"rb,omitempty"`
	OpA   string `json:"oa,omitempty"`
	OpB   string `json:"ob,omitempty"`
	// timeout: who was there, and what the others do
	Elapsed time.Duration  `json:"e,omitempty"`
	Missing []int          `json:"m,omitempty"`
	Arrived []int          `json:"a,omitempty"`
	Unknown []int          `json:"u,omitempty"`
	Refused map[int]string `json:"f,omitempty"`
	Others  map[int]string `json:"d,omitempty"`
}

// The kinds of failure.
const (
	Lost     = "lost"
	Mismatch = "mismatch"
	Timeout  = "timeout"
	Abort    = "abort"
)

// FailureOf puts what a rank has found into a form that travels.
func FailureOf(cause error, rank int) Failure {
	f := Failure{Rank: rank}
	switch e := cause.(type) {
	case *backend.PeerLostError:
		f.Kind, f.Rank, f.By, f.Text, f.Op, f.Seq = Lost, e.Peer, rank, e.Cause, e.Op, e.Seq
	case *backend.MismatchError:
		f.Kind, f.Seq, f.Op = Mismatch, e.Seq, e.Op
		f.RankA, f.RankB, f.OpA, f.OpB = e.RankA, e.RankB, e.OpA, e.OpB
		f.From = e.Seq
	case *backend.TimeoutError:
		f.Kind, f.Seq, f.Op, f.Elapsed = Timeout, e.Seq, e.Op, e.Elapsed
		f.Missing, f.Arrived, f.Unknown, f.Refused, f.Others = e.Missing, e.Arrived, e.Unknown, e.Refused, e.Doing
	case *backend.AbortedError:
		f.Kind, f.Seq, f.Op, f.Text, f.Rank = Abort, e.Seq, e.Op, e.Reason, e.By
		f.From = e.Seq
	default:
		f.Kind, f.Text = Abort, cause.Error()
	}
	return f
}

// Known reports whether a failure is of one of the kinds above.
func (f *Failure) Known() bool {
	switch f.Kind {
	case Lost, Mismatch, Timeout, Abort:
		return true
	}
	return false
}

// Err returns the failure as a typed error of a rank that has learned of it.
func (f *Failure) Err(at backend.Where) error {
	switch f.Kind {
	case Lost:
		return &backend.PeerLostError{Where: at, Peer: f.Rank, Cause: f.Text}
	case Mismatch:
		return &backend.MismatchError{Where: at, RankA: f.RankA, RankB: f.RankB, OpA: f.OpA, OpB: f.OpB}
	case Timeout:
		return &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: f.Elapsed,
			Missing: f.Missing, Arrived: f.Arrived, Unknown: f.Unknown, Refused: f.Refused, Doing: f.Others}}
	}
	return &backend.AbortedError{Where: at, By: f.Rank, Reason: f.Text}
}

// Translated returns the failure with other numbers for its ranks.
func (f Failure) Translated(rank func(r int) int) Failure {
	list := func(ranks []int) (other []int) {
		for _, r := range ranks {
			other = append(other, rank(r))
		}
		return other
	}
	f.Rank, f.By, f.RankA, f.RankB = rank(f.Rank), rank(f.By), rank(f.RankA), rank(f.RankB)
	f.Missing, f.Arrived, f.Unknown = list(f.Missing), list(f.Arrived), list(f.Unknown)
	f.Refused, f.Others = nil, nil
	return f
}

// Shorten drops what a failure can do without, or halves its longest part: its lists of ranks, or one of its texts, or
// of others that travel with it.
func (f *Failure) Shorten(others ...*string) {
	if len(f.Refused)+len(f.Others) > 0 {
		f.Refused, f.Others = nil, nil
		return
	}
	if ranks := max(len(f.Missing), len(f.Arrived), len(f.Unknown)); ranks > len(f.Text)/8 {
		half := func(list []int) []int { return list[:min(len(list), ranks/2)] }
		f.Missing, f.Arrived, f.Unknown = half(f.Missing), half(f.Arrived), half(f.Unknown)
		return
	}
	longest := &f.Text
	for _, s := range append(others, &f.OpA, &f.OpB) {
		if len(*s) > len(*longest) {
			longest = s
		}
	}
	*longest = (*longest)[:len(*longest)/2]
}

// Encode returns v, which shorten shortens, as JSON of at most so many bytes; nil if there is no such.
func Encode(v any, most int, shorten func()) []byte {
	payload, err := json.Marshal(v)
	for err == nil && len(payload) > most {
		shorten()
		payload, err = json.Marshal(v)
	}
	if err != nil {
		return nil
	}
	return payload
}

// LossOf is the error of a link that broke: the peer is lost, unless it's this process that can't keep the link up, or
// the peer has said that it can't.
func LossOf(at backend.Where, peer int, err error) error {
	if unable := (*fabric.UnableError)(nil); errors.As(err, &unable) {
		return &backend.AbortedError{Where: at, By: peer, Reason: unable.Reason}
	}
	if fabric.Exhausted(err) || errors.Is(err, fabric.ErrNoTransport) {
		return &backend.InternalError{Where: at, Err: fmt.Errorf("the link to rank %d broke: %w", peer, cause(err))}
	}
	return &backend.PeerLostError{Where: at, Peer: peer, Cause: Reason(err)}
}

// Reason strips a link's own wording from an error about a peer.
func Reason(err error) string { return cause(err).Error() }

// cause is what a link says of an error about a peer.
func cause(err error) error {
	for {
		p, ok := err.(*fabric.PeerError)
		if !ok {
			return err
		}
		err = p.Err
	}
}
