package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/launch"
)

// Outcome is what came of a round.
type Outcome struct {
	Program  *Program
	Reports  []*Report // by rank; nil if it did not return
	Stuck    string    // what the ranks were doing if not all of them returned; or how the process ended
	Fired    bool      // the fault has happened
	Hangs    []string
	Wrong    []string
	Misnamed []string
	Detect   []time.Duration // from the fault to the first error of each rank that got one

	unexplained []string // what the dumps should have told and have not

	struck int64 // when a process that can't tell any more was struck, in nanoseconds since 1970
}

// Bad reports whether the round has found something.
func (o *Outcome) Bad() bool { return len(o.Hangs)+len(o.Wrong)+len(o.Misnamed) > 0 }

// judge decides what the reports say of the library.
func (o *Outcome) judge() {
	f := o.Program.Fault
	fired := o.struck
	for _, rep := range o.Reports {
		if rep != nil && rep.Fired != 0 && (fired == 0 || rep.Fired < fired) {
			fired = rep.Fired
		}
	}
	if f.Kind == Exhausted && f.Rank < len(o.Reports) && o.Reports[f.Rank] != nil && len(o.Reports[f.Rank].Failures) == 0 {
		fired = 0 // what was left was enough
	}
	o.Fired = fired != 0
	for r := range o.Program.Size {
		dead := f.dead() && r == f.Rank && o.Fired
		var rep *Report
		if r < len(o.Reports) {
			rep = o.Reports[r]
		}
		switch {
		case dead:
			continue
		case rep == nil:
			o.Hangs = append(o.Hangs, fmt.Sprintf("rank %d did not return", r))
			continue
		}
		o.Wrong = append(o.Wrong, rep.Wrong...)
		if len(rep.Failures) > 0 && o.Fired {
			if d := rep.Failures[0].At - fired; d >= 0 && r != f.Rank {
				o.Detect = append(o.Detect, time.Duration(d))
			}
		}
		for _, x := range rep.Failures {
			if bad := o.misnamed(r, x); bad != "" {
				o.Misnamed = append(o.Misnamed, fmt.Sprintf("rank %d: %s: %s", r, bad, x.Text))
			}
		}
		if bad := o.regrouped(r, rep.Regrouped); bad != "" {
			o.Misnamed = append(o.Misnamed, fmt.Sprintf("rank %d %s", r, bad))
		}
		if bad := o.unnoticed(r, rep); bad != "" {
			o.Misnamed = append(o.Misnamed, fmt.Sprintf("rank %d %s", r, bad))
		}
	}
	o.Misnamed = append(o.Misnamed, o.unexplained...)
	if o.Stuck != "" && len(o.Hangs) == 0 {
		o.Hangs = append(o.Hangs, "something of the ranks did not return")
	}
}

// unnoticed says what a rank should have noticed and has not.
func (o *Outcome) unnoticed(r int, rep *Report) string {
	p, f := o.Program, o.Program.Fault
	if f.Kind == Exhausted && r == f.Rank && len(rep.Failures) > 0 && !strings.Contains(rep.Failures[0].Text, p.want()) {
		return "does not say what it lacks: " + rep.Failures[0].Text
	}
	if !o.Fired || r == f.Rank || len(rep.Failures) > 0 {
		return ""
	}
	switch f.does() {
	case Kill, Stop, Exit:
		// The last step is a barrier of all.
		if f.Step < len(p.Steps)-1 && f.Calls == 0 {
			return "noticed nothing"
		}
	case Absent:
		return "joined a world that is not complete"
	case Apart, Silent, Unserved:
		return "noticed nothing"
	}
	return ""
}

// want is what a rank lacks that is exhausted, as its error says.
func (p *Program) want() string {
	if p.Mode == Real {
		return syscall.EMFILE.Error()
	}
	return syscall.ENOMEM.Error()
}

// misnamed says why an error is not one that the fault should give; "" if it is.
func (o *Outcome) misnamed(r int, x Failure) string {
	f := o.Program.Fault
	if !o.Fired || f.harmless() {
		return "nothing was wrong"
	}
	if r == f.Rank && f.Kind != Mismatch && f.Kind != Abort && f.Kind != Panic && f.Kind != Apart || o.right(r, x) ||
		o.passedOn(x) {
		// The culprit itself may get any error, except that it must not blame others for its own call.
		return ""
	}
	if o.heldUp(r, x, make([]bool, o.Program.Size)) || o.peersLeft(r, x) {
		return ""
	}
	return fmt.Sprintf("%s on communicator %d, step %d, names %v", x.Kind, x.Comm, x.Step, x.Named)
}

// right reports whether an error is the one that the fault gives a rank which has to do with it.
func (o *Outcome) right(r int, x Failure) bool {
	p, f := o.Program, o.Program.Fault
	// The host of its store isn't a member; a rank that was through misses a rank that was not.
	if f.Kind == Host && !p.Comms[x.Comm].has(f.Rank) {
		return x.Kind == "lost" && (len(x.Named) == 0 || len(x.Named) == 1 && o.lacks(x.Named[0], x.Comm))
	}
	if f.Rank >= 0 && !p.Comms[x.Comm].has(f.Rank) {
		return false
	}
	names := slices.Contains(x.Named, f.Rank)
	only := len(x.Named) == 1 && names
	switch f.does() {
	case Host: // a rank that was through can't make the communicator if another one was not
		return x.Kind == "lost" && (only || len(x.Named) == 1 && o.lacks(x.Named[0], x.Comm))
	case Kill:
		return x.Kind == "lost" && only
	case Exit: // a receiver from any rank doesn't know that its message was to come from the rank that has left
		return x.Kind == "lost" && only || x.Kind == "timeout" && (names || x.ofAny(p))
	case Stop, Late: // a receiver from any rank names none
		return x.Kind == "timeout" && (names || len(x.Named) == 0 && x.ofAny(p)) || x.Kind == "lost" && only
	case Drop:
		// The sender doesn't notice a lost message: it may have gone on, and left. The rank that waits for the message
		// is seen to hold the others up. A rank that has finished and left gives no answer, but isn't called missing.
		return x.Kind == "timeout" && (names || slices.Contains(x.Named, f.Peer) || !strings.Contains(x.Text, "missing: ")) ||
			x.Kind == "lost" && only
	case Truncate, Flip:
		return x.Kind == "mismatch" && (names || r == f.Rank)
	case Mismatch: // whose others may not have needed it, and be past that, and gone
		return (x.Kind == "mismatch" || x.Kind == "timeout") && names || (x.Kind == "lost" || x.Kind == "timeout") &&
			r == f.Rank
	case Abort, Panic:
		return x.Kind == "aborted" && only
	case Cut: // what is cut is one side's: the other one sees that a message is withdrawn, and no report says why
		return x.Kind == "lost" && len(x.Named) == 1 && (names || x.Named[0] == f.Peer) ||
			x.Kind == "aborted" && only && r == f.Peer && strings.Contains(x.Text, "withdrew")
	case Partition: // links break one after the other: a rank that has lost one tells ranks that it still reaches
		return x.Kind == "lost" && len(x.Named) == 1
	case Apart:
		if r == f.Rank { // the first launcher finds all others lost, and each of these the first
			only = len(x.Named) == 1 && x.Named[0] != r && (r == 0 || x.Named[0] == 0)
		}
		return x.Kind == string(launch.NodeLost) && only
	case Silent, Unserved:
		return x.Kind == string(launch.NodeLost) && only
	case Absent:
		return (x.Kind == "missing" || x.Kind == "timeout") && only
	case Exhausted:
		return x.Kind == "aborted" && only
	}
	return false
}

// heldUp reports whether an error names ranks that the culprit has kept from arriving. Each of them got an error
// itself, in a step that is not later. Besides, at least one of them is the culprit, or lacks the communicator because
// its parent broke, or got an earlier error that is right or for which heldUp holds in turn. A rank that waits for a
// message of any rank names none: then this must hold of one of the others. seen are the ranks whose errors are being
// looked at.
//
// A rank that is named itself has come late to a communicator that broke without it: then the others' step is a later
// one.
func (o *Outcome) heldUp(r int, x Failure, seen []bool) bool {
	if x.Kind != "timeout" {
		return false
	}
	if len(x.Named) == 0 && x.ofAny(o.Program) {
		return slices.ContainsFunc(o.Program.Comms[x.Comm].Members, func(who int) bool {
			one := x
			one.Named = []int{who}
			return who != r && o.heldUp(r, one, seen)
		})
	}
	cause, step := false, x.Step
	if slices.Contains(x.Named, r) {
		step = len(o.Program.Steps)
	}
	for _, who := range x.Named {
		if o.lacks(who, x.Comm) || who == o.Program.Fault.Rank && len(x.Named) > 1 {
			cause = true
			continue
		}
		if o.Reports[who] == nil {
			return false
		}
		came := true
		for _, y := range o.Reports[who].Failures {
			if y.Step > step {
				continue
			}
			came = false
			if !cause && !seen[who] && (y.Comm != x.Comm || y.Step < step) {
				seen[who] = true
				cause = o.right(who, y) || o.passedOn(y) || o.heldUp(who, y, seen)
				seen[who] = false
			}
		}
		if came {
			return false
		}
	}
	return cause
}

// peersLeft reports whether a rank waited for a message of any rank, which was lost on its way, until all others had
// left because of errors of their own. It can't know whose message was to come; the error names one of the ranks that
// have left, and says that no other rank is left.
func (o *Outcome) peersLeft(r int, x Failure) bool {
	if o.Program.Fault.Kind != Drop || r != o.Program.Fault.Peer || x.Kind != "lost" || !x.ofAny(o.Program) ||
		!strings.Contains(x.Text, "no other rank is left") {
		return false
	}
	return !slices.ContainsFunc(o.Reports, func(other *Report) bool {
		return other == nil || other.Rank != r && (len(other.Failures) == 0 || other.Failures[0].At > x.At)
	})
}

// lacks reports whether a rank that survived is not in a communicator of its own, because what it was to be split from
// broke when others had just made it. To these it never comes.
func (o *Outcome) lacks(rank, on int) bool {
	rep := o.Reports[rank]
	return rep != nil && slices.Contains(rep.Without, on)
}

// passedOn reports whether an abort by a rank passes on an error of its own, which is judged there. An error that
// quotes others leaves out how these begin.
func (o *Outcome) passedOn(x Failure) bool {
	if x.Kind != "aborted" || len(x.Named) != 1 {
		return false
	}
	by := o.Reports[x.Named[0]]
	return by != nil && slices.ContainsFunc(by.Failures, func(y Failure) bool {
		return strings.Contains(x.Text, strings.ReplaceAll(y.Text, backend.Beginning, ""))
	})
}

// ofAny reports whether an error is of a step in which one rank receives from any.
func (x Failure) ofAny(p *Program) bool {
	return x.Step >= 0 && x.Step < len(p.Steps) && p.Steps[x.Step].Do == anySource
}
