package chaos

import (
	"slices"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of fault. The rank at fault is called the culprit.
const (
	None      FaultKind = "none"      // nothing
	Kill      FaultKind = "kill"      // the culprit's process dies: SIGKILL
	Stop      FaultKind = "stop"      // it stands still for good: SIGSTOP
	Pause     FaultKind = "pause"     // it stands still for less than the others' patience
	Late      FaultKind = "late"      // it comes to a step when the others have given up
	Slow      FaultKind = "slow"      // it comes late to every step, but in time
	Delay     FaultKind = "delay"     // some of its messages are late
	Drop      FaultKind = "drop"      // from some message on, nothing that it sends to one peer arrives
	Truncate  FaultKind = "truncate"  // half of one is missing
	Flip      FaultKind = "flip"      // one bit of the label of one is wrong
	Cut       FaultKind = "cut"       // its link to one peer breaks
	Partition FaultKind = "partition" // the links between two halves of the world break
	Mismatch  FaultKind = "mismatch"  // it calls another operation than the others
	Abort     FaultKind = "abort"     // it gives up, by Abort
	Panic     FaultKind = "panic"     // a hook of it panics, or ends its goroutine
	Exit      FaultKind = "exit"      // it leaves in the middle, by Finalize
	Absent    FaultKind = "absent"    // it never joins
	Exhausted FaultKind = "exhausted" // it has no memory, or descriptors, left
	// It dies while others make a communicator at a store that it serves; in real programs only.
	Host  FaultKind = "host"
	Apart FaultKind = "apart" // the links between its launcher and the others fall silent; in real rounds only
	// Clients of its launcher's store and page go away while they're answered; in real rounds only.
	Deserted FaultKind = "deserted"
	Silent   FaultKind = "silent"   // its launcher stands still, and falls silent; in real rounds only
	Unserved FaultKind = "unserved" // it is the launcher that the others meet at, and dies; in real rounds only
	// The name at which the launchers meet, which have no numbers, resolves late; in real rounds only.
	Unresolved FaultKind = "unresolved"
	// It stands still for good, the others leave it out, and its launcher may lose it; in real rounds only.
	LeftOut FaultKind = "leftout"
	// It comes too late, or gives up, while the world is made, and all try again.
	Retried FaultKind = "retried"
	Crossed FaultKind = "crossed" // two parts of the world make a communicator each at one place, for a name of both
	// It dies or stands still; another rank did so in an earlier life of the job, whose dumps are in the same directory
	// still. In real rounds only.
	Stale FaultKind = "stale"
)

// corrupt is what nothing finds but the checker, which it's to test: a bit of the data of one message is wrong.
const corrupt FaultKind = "corrupt"

// FaultKinds are all kinds, in the order of the tables.
var FaultKinds = []FaultKind{None, Kill, Stop, Pause, Late, Slow, Delay, Drop, Truncate, Flip, Cut, Partition, Mismatch,
	Abort, Panic, Exit, Absent,
	Exhausted, Host, Apart, Deserted, Silent, Unserved, Unresolved, LeftOut, Retried, Crossed, Stale}

// RealOnly reports whether only real rounds have faults of this kind.
func (k FaultKind) RealOnly() bool {
	return k == Host || k == Stale || k == LeftOut || k.ofLaunchers()
}

// ofLaunchers reports whether a round's ranks have launchers, which the fault is done to.
func (k FaultKind) ofLaunchers() bool {
	switch k {
	case Apart, Deserted, Silent, Unserved, Unresolved:
		return true
	}
	return false
}

// maxLeft is with how many descriptors at most a process is exhausted: what a step opens fits into more.
const maxLeft = 40

// Fault is what goes wrong in one program.
type Fault struct {
	Kind  FaultKind
	Rank  int           // the culprit; -1 if there is none
	Peer  int           // the other end of a cut link
	Side  []int         // the ranks of one side of a partition
	Step  int           // when it happens: at the beginning of this step
	Calls int           // and so many calls of the fabric later; 0: before the step
	Delay time.Duration // how long, or, with real processes, how much later
	After int           // how many messages pass before one is broken
	Wrong int           // which difference a mismatch makes, which hook panics, and how; what a rank of Stale does
	// How many descriptors are left to a process that is exhausted, in Step or, if that is -1, as it joins.
	Left int
}

// does returns what the culprit's process does: of Stale, one of two.
func (f Fault) does() FaultKind {
	switch {
	case f.Kind == LeftOut:
		return Stop
	case f.Kind != Stale:
		return f.Kind
	case f.Wrong%2 == 0:
		return Kill
	}
	return Stop
}

// waits reports whether others notice the fault only when their patience ends.
func (f Fault) waits() bool {
	switch f.does() {
	case Stop, Late, Drop, Absent:
		return true
	}
	return false
}

// onMessages reports whether the fault is done to messages, by rules of package fabric/fault.
func (f Fault) onMessages() bool {
	switch f.Kind {
	case Delay, Drop, Truncate, Flip, corrupt:
		return true
	}
	return false
}

// harmless reports whether all operations must succeed.
func (f Fault) harmless() bool {
	switch f.Kind {
	case None, Pause, Slow, Delay, Deserted, Unresolved, Retried, Crossed:
		return true
	}
	return false
}

// dead reports whether the culprit has no say any more.
func (f Fault) dead() bool {
	switch f.does() {
	case Kill, Host, Stop, Absent, Unserved:
		return true
	}
	return false
}

// fault draws what goes wrong.
func (m *maker) fault(from []FaultKind) {
	p := &m.p
	if from == nil {
		from = FaultKinds
	}
	if p.Mode == Virtual {
		from = slices.DeleteFunc(slices.Clone(from), FaultKind.RealOnly)
	}
	f := &p.Fault
	*f = Fault{Kind: of(m, from...), Rank: m.IntN(p.Size), Step: m.IntN(len(p.Steps)), Wrong: m.IntN(4)}
	f.Peer = (f.Rank + 1 + m.IntN(p.Size-1)) % p.Size
	if m.IntN(3) > 0 {
		f.Calls = 1 + m.IntN(12)
	}
	f.After = m.IntN(4)
	unit := time.Millisecond // of real time
	p.Timeout, p.Patient = time.Second, 30*time.Second
	if p.Mode == Virtual {
		unit = 100 * time.Millisecond
		p.Timeout, p.Patient = 30*time.Second, 10*time.Minute
	}
	f.Delay = time.Duration(m.IntN(20)) * unit / 10
	switch f.Kind {
	case None:
		f.Rank = -1
	case Late: // and half a unit, so as not to come at the very moment at which the others give up
		f.Delay = p.Timeout + time.Duration(500+m.IntN(1500))*unit + unit/2
	case Pause:
		f.Delay = time.Duration(20+m.IntN(100)) * unit
	case Slow, Delay:
		f.Delay = time.Duration(1+m.IntN(20)) * unit
	case Cut:
		f.Side = []int{f.Rank}
	case Partition:
		f.Rank = -1
		for len(f.Side) == 0 || len(f.Side) == p.Size {
			f.Side = nil
			for r := range p.Size {
				if m.IntN(2) == 0 {
					f.Side = append(f.Side, r)
				}
			}
		}
	case Host:
		m.hosting()
	case Crossed:
		m.crossing()
	case Unserved: // which is the launcher of the first node
		f.Rank = 0
	case Unresolved:
		f.Delay = time.Duration(m.IntN(1500)) * unit
	case LeftOut:
		m.leavingOut()
	case Stale: // surely, and early enough that all others notice
		f.Step, f.Calls = m.IntN(len(p.Steps)-1), 0
	case Retried:
		f.Wrong = m.IntN(startWays)
		f.Delay = time.Duration(m.IntN(50)) * unit // of which a start takes some
		if f.Wrong == startLate {
			f.Delay = p.Timeout + time.Duration(m.IntN(1000))*unit
		}
		p.Late = p.Timeout
	case Exhausted:
		if p.Mode == Real {
			m.starving()
		}
	case Mismatch:
		f.Step = m.IntN(len(p.Steps))
		for p.Steps[f.Step].Do != collective || !p.Comms[p.Steps[f.Step].On].has(f.Rank) ||
			len(p.Comms[p.Steps[f.Step].On].Members) == 1 {
			f.Step = (f.Step + 1) % len(p.Steps) // the last one suits
		}
	}
	if !f.waits() {
		p.Timeout = p.Patient
	}
}

// starving draws with how many descriptors left the culprit's process does something that opens some: joining, the
// first step, which connects, a split or a window.
func (m *maker) starving() {
	f := &m.p.Fault
	f.Left = m.IntN(maxLeft + 1)
	if m.IntN(4) > 0 {
		f.Left %= 8 // mostly few are opened
	}
	opening := []int{-1, -1, 0}
	for k, s := range m.p.Steps {
		if s.Do == split || s.Do == window {
			opening = append(opening, k)
		}
	}
	f.Step = of(m, opening...)
}

// timeout returns how long operations of a communicator wait. Operations of the world time out first, so that a rank
// that waits for the culprit on another communicator is not taken for the culprit. No two communicators time out at the
// same moment: otherwise a rank that one communicator releases would seem to have arrived at the other just in time.
func (p *Program) timeout(on int) time.Duration {
	d := p.Timeout
	switch {
	case !p.Fault.waits() || p.Fault.Rank >= 0 && !p.Comms[on].has(p.Fault.Rank):
		d = p.Patient
	case on > 0:
		d *= 3
	}
	return d + time.Duration(on)*p.Timeout/20
}

// joining returns how long ranks wait for each other at the start. Processes of other programs may be in their way
// then.
func (p *Program) joining() time.Duration {
	switch {
	case p.Fault.Kind == Retried && p.Fault.Wrong == startLate:
		return p.Late
	case p.Fault.Kind != Absent:
	case p.Mode == Real:
		return 3 * p.Timeout
	default:
		return p.Timeout
	}
	return p.Patient
}
