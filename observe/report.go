package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
)

// Kind says what sort of thing went wrong.
type Kind string

// The kinds of finding.
const (
	KindMismatch Kind = "mismatch" // ranks call different operations under one number
	KindOrder    Kind = "order"    // they call the same ones in another order
	KindCrossed  Kind = "crossed"  // ranks wait for each other in different communicators, or for each other's messages
	KindNoDump   Kind = "no_dump"  // a rank that is waited for left no dump: it's dead, stopped or cut off
	KindMissing  Kind = "missing"  // a rank that is waited for is busy elsewhere
	KindRefused  Kind = "refused"  // a rank's call was refused for its arguments
	KindPanicked Kind = "panicked" // a rank's program ended by a panic
	KindRaised   Kind = "raised"   // a rank's Python program ended by an exception
	KindLeft     Kind = "left"     // a rank has ended the communicator, or never made it
	KindAborted  Kind = "aborted"  // a rank gave up
	KindEngine   Kind = "engine"   // all have arrived, and the engines of the others wait for a rank's
	KindLost     Kind = "lost"     // a link broke though both of its ranks live
	KindSlow     Kind = "slow"     // nothing is stuck, but the others mostly wait for one rank
	KindUnknown  Kind = "unknown"  // a communicator has failed, and no dump tells because of which rank
)

// Report is what the dumps of a job tell.
type Report struct {
	Job      string    `json:"job"`
	Size     int       `json:"size"`
	Missing  []int     `json:"no_dump"` // ranks of which there is no dump
	Findings []Finding `json:"findings"`
}

// Finding is one thing that went wrong, and the ranks at fault. Ranks are the job's.
type Finding struct {
	Kind     Kind    `json:"kind"`
	Comm     string  `json:"comm"`
	Op       string  `json:"op"` // the operation that the others are in, in full
	Seq      uint64  `json:"seq,omitempty"`
	Ranks    []int   `json:"ranks"` // the culprits
	Culprits []Party `json:"culprits"`
	Waiting  []Party `json:"waiting"` // the ranks that wait for them, by call site
	Detail   string  `json:"detail,omitempty"`
}

// headline says the finding in one line.
func (f *Finding) headline() string {
	who := record.RankNames(f.Ranks)
	is, has, calls := "is", "has", "calls"
	if len(f.Ranks) > 1 {
		is, has, calls = "are", "have", "call"
	}
	op := f.Op
	if f.Seq != 0 {
		op += fmt.Sprintf(" #%d", f.Seq)
	}
	op += fmt.Sprintf(" of %q", f.Comm)
	switch f.Kind {
	case KindMismatch:
		return fmt.Sprintf("%s %s something else than %s", who, calls, op)
	case KindOrder:
		return fmt.Sprintf("%s %s the operations in another order; the others are in %s", who, calls, op)
	case KindCrossed:
		return fmt.Sprintf("%s wait for each other in a circle", who)
	case KindNoDump:
		return fmt.Sprintf("%s left no dump (dead, stopped or cut off) and %s missing from %s", who, is, op)
	case KindMissing:
		return fmt.Sprintf("%s %s missing from %s", who, is, op)
	case KindRefused:
		return fmt.Sprintf("%s %s missing from %s, because the call was refused", who, is, op)
	case KindPanicked:
		return fmt.Sprintf("%s panicked and %s missing from %s", who, is, op)
	case KindRaised:
		return fmt.Sprintf("%s raised an exception and %s missing from %s", who, is, op)
	case KindLeft:
		return fmt.Sprintf("%s %s ended the communicator while others are in %s", who, has, op)
	case KindAborted:
		return fmt.Sprintf("%s gave up in %s", who, op)
	case KindEngine:
		return fmt.Sprintf("the engine of %s does not answer those that wait for it in %s", who, op)
	case KindLost:
		return fmt.Sprintf("the link to %s broke in %s", who, op)
	case KindUnknown:
		if op == nothing {
			return "no dump tells which rank failed"
		}
		return "no dump tells which rank made " + op + " fail"
	default:
		return fmt.Sprintf("%s %s late in %s again and again", who, is, op)
	}
}

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	if r.Job != "" { // its launcher may have given it no name
		fmt.Fprintf(&b, "job %q: ", r.Job)
	}
	fmt.Fprintf(&b, "dumps of %d of %d ranks\n\n", r.Size-len(r.Missing), r.Size)
	if len(r.Findings) == 0 {
		b.WriteString("nothing is stuck, and no rank is late\n")
	}
	b.WriteString(r.Details())
	return b.String()
}

// Details is the report as text without what it says first: the findings, and whose dumps are missing.
func (r *Report) Details() string {
	var b strings.Builder
	for i, f := range r.Findings {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d. %s: %s\n", i+1, f.Kind, plain.Line(f.headline()))
		for _, p := range f.Culprits {
			fmt.Fprintf(&b, "   %v\n", p)
		}
		for _, p := range f.Waiting {
			fmt.Fprintf(&b, "   waiting: %v\n", p)
		}
		if f.Detail != "" {
			fmt.Fprintf(&b, "   %s\n", plain.Line(f.Detail))
		}
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(&b, "\nno dump: %s\n", record.RankNames(r.Missing))
	}
	return b.String()
}

// gather joins the parties that do the same at the same place.
func gather(parties []Party) []Party {
	var out []Party
	for _, p := range parties {
		i := slices.IndexFunc(out, func(q Party) bool { return q.Does == p.Does && q.At == p.At && q.After == p.After })
		if i < 0 {
			out = append(out, p)
		} else {
			out[i].Ranks = append(out[i].Ranks, p.Ranks...)
			out[i].Waited = max(out[i].Waited, p.Waited)
		}
	}
	return out
}
