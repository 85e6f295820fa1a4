package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
		if bad := o.unnoticed(r, rep); bad != "" {
			o.Misnamed = append(o.Misnamed, fmt.Sprintf("rank %d %s", r, bad))
		}
	}
	if o.Stuck != "" && len(o.Hangs) == 0 {
		o.Hangs = append(o.Hangs, "something of the ranks did not return")
	}
}

// unnoticed says what a rank should have noticed and has not.
func (o *Outcome) unnoticed(r int, rep *Report) string {
	p, f := o.Program, o.Program.Fault
	if !o.Fired || r == f.Rank || len(rep.Failures) > 0 {
		return ""
	}
	switch f.Kind {
	case Kill, Stop, Exit:
		// The last step is a barrier of all.
		if f.Step < len(p.Steps)-1 && f.Calls == 0 {
			return "noticed nothing"
		}
	case Absent:
		return "joined a world that is not complete"
	}
	return ""
}

// misnamed says why an error is not the one that the fault should give; "" if it is.
func (o *Outcome) misnamed(r int, x Failure) string {
	p, f := o.Program, o.Program.Fault
	g := p.Comms[x.Comm]
	if !o.Fired || f.harmless() {
		return "nothing was wrong"
	}
	if o.incomplete(x.Comm) || x.Kind == "timeout" && o.heldUp(x.Named) {
		return ""
	}
	if f.Kind == Exit && x.Kind == "timeout" && p.hearing(f.Step, x.Named) {
		return "" // of one that waits elsewhere for a message of any rank
	}
	if f.Rank >= 0 && !g.has(f.Rank) {
		return fmt.Sprintf("rank %d is not in this communicator", f.Rank)
	}
	names := slices.Contains(x.Named, f.Rank)
	only := len(x.Named) == 1 && names
	ok := false
	switch f.Kind {
	case Kill:
		ok = x.Kind == "lost" && only
	case Exit: // who waits for a message of any rank does not know that it was to come from the one that has left
		ok = x.Kind == "lost" && (only || x.ofAny(p)) || x.Kind == "timeout" && (p.hears(f.Step, x.Comm) || p.hearing(f.Step, x.Named))
	case Stop, Late:
		ok = x.Kind == "timeout" && (names || x.between(p)) || x.Kind == "lost" && only
	case Drop: // of which the sender knows nothing: it may have gone on, and left
		ok = x.Kind == "timeout" || x.Kind == "lost" && (only || x.ofAny(p))
	case Truncate, Flip:
		ok = x.Kind == "mismatch" && (names || r == f.Rank)
	case Mismatch: // which shows at the deadline only if nobody has sent anybody anything
		ok = (x.Kind == "mismatch" || x.Kind == "timeout") && names || (x.Kind == "lost" || x.Kind == "timeout") && r == f.Rank // the others did not need it, and are past that
	case Abort:
		ok = x.Kind == "aborted" && only
	case Cut:
		ok = x.Kind == "lost" && len(x.Named) == 1 && (names || x.Named[0] == f.Peer)
	case Partition: // the links break one after the other, and who has lost one yet tells those whom it has not
		ok = x.Kind == "lost" && len(x.Named) == 1
	case Absent:
		ok = (x.Kind == "missing" || x.Kind == "timeout") && only
	case Exhausted:
		ok = names || r == f.Rank
	}
	if ok || r == f.Rank && f.Kind != Mismatch && f.Kind != Abort || o.passedOn(x) {
		return ""
	}
	return fmt.Sprintf("%s on communicator %d, step %d, names %v", x.Kind, x.Comm, x.Step, x.Named)
}

// incomplete reports whether a rank that survived is not in a communicator of its own, because what it was to be split from
// broke when others had just made it. To these it never comes.
func (o *Outcome) incomplete(on int) bool {
	for _, rep := range o.Reports {
		if rep != nil && slices.Contains(rep.Without, on) {
			return true
		}
	}
	return false
}

// heldUp reports whether one of the ranks is a member of an incomplete communicator, where it waits.
func (o *Outcome) heldUp(ranks []int) bool {
	for on, g := range o.Program.Comms {
		if slices.ContainsFunc(ranks, g.has) && o.incomplete(on) {
			return true
		}
	}
	return false
}

// passedOn reports whether an abort by a rank passes on an error of its own, which is judged there.
func (o *Outcome) passedOn(x Failure) bool {
	if x.Kind != "aborted" || len(x.Named) != 1 {
		return false
	}
	by := o.Reports[x.Named[0]]
	if by == nil {
		return false
	}
	for _, y := range by.Failures {
		if strings.Contains(x.Text, y.Text) {
			return true
		}
	}
	return false
}

// between reports whether an error is of something that two ranks do, which names the other one: it may itself wait for the
// culprit. Who waits for a message of any rank names none.
func (x Failure) between(p *Program) bool {
	if x.Step < 0 || x.Step >= len(p.Steps) {
		return false
	}
	switch p.Steps[x.Step].Do {
	case ring, anySource, window:
		return true
	}
	return false
}

// ofAny reports whether an error is of a receive from any rank, which ends when all others have gone.
func (x Failure) ofAny(p *Program) bool {
	return x.Step >= 0 && x.Step < len(p.Steps) && p.Steps[x.Step].Do == anySource
}

// hearing reports whether one of the ranks waits for a message of any rank, on whichever communicator, from step k on.
func (p *Program) hearing(k int, ranks []int) bool {
	return slices.ContainsFunc(p.Steps[k:], func(s step) bool {
		return s.Do == anySource && slices.Contains(ranks, p.Comms[s.On].Members[s.Root])
	})
}

// hears reports whether some rank of a communicator waits for a message of any rank from step k on.
func (p *Program) hears(k, on int) bool {
	return slices.ContainsFunc(p.Steps[k:], func(s step) bool { return s.Do == anySource && s.On == on })
}
