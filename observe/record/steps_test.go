package record

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// scripted is an operation of the script, and what snapshots may say of it. Its number is that of its elements.
type scripted struct {
	special, message, queued, async bool
	seq                             uint64
	err                             error
	algorithm                       string
	begun, over                     bool // the calls have begun, have returned
}

// script has a recorder's owner record operations of all sorts, and stops after each call; or after each store, if
// that's how it was built.
func script(r *Recorder, ops []*scripted) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		on := true
		stop := func() { on = on && yield(struct{}{}) }
		defer steps(stop)()
		seq := uint64(0)
		for n := range ops {
			s := &scripted{special: n%9 == 5}
			s.message, s.queued, s.async = !s.special && n%4 == 3, !s.special && n%4 == 0, !s.special && n%8 == 4
			ops[n], s.begun = s, true
			x := tensor.Of(make([]float32, n+1))
			op := &backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind}}
			if n%5 == 2 {
				s.err = backend.ErrTimeout
			}
			var id uint64
			switch {
			case s.special:
				id = r.BeginSpecial(NewWindow, n+1)
				stop()
				r.Drop(id, s.err)
			case s.message:
				*op = backend.Op{Kind: backend.Recv, Out: x, In: x, Peer: backend.AnySource}
				id = r.Issue(op, s.async, false)
				stop()
				op.From = n
				r.End(id, op, s.err)
			default:
				seq++
				if s.seq = seq; s.queued {
					id = r.Issue(op, s.async, true)
					stop()
					r.Start(id, op)
				} else {
					id = r.Begin(op, s.async)
				}
				stop()
				s.algorithm = fmt.Sprint("number ", n/2) // a new one, or that of the operation before
				op.Seq, op.Algorithm = seq, s.algorithm
				r.End(id, op, s.err)
			}
			s.over = true
			stop()
			if !on {
				return
			}
		}
	}
}

// check returns what is wrong with an entry: it has to be one of the states that its operation has been in.
func (s *scripted) check(e *Entry, over bool) string {
	queued := e.State == "scheduled"
	pending := e.Chorus.Status == Pending.String()
	status := statusOf(s.err)
	timed := s.special || s.message || s.async || s.err != nil || s.seq%TimedPeriod == 0
	switch {
	case !s.begun:
		return "it hasn't begun"
	case queued && (!s.queued || !pending || e.Started != nil || e.Seq != 0):
		return "it waits for its turn, or doesn't"
	case !queued && (e.Started == nil || e.Seq != s.seq):
		return fmt.Sprintf("it's number %d, and under way at least", s.seq)
	case pending && over:
		return "it's over"
	case pending && (e.Chorus.Algorithm != "" || e.Completed != nil || e.Retired):
		return "it's over, or isn't"
	case !pending && (e.Chorus.Status != status.String() || e.Chorus.Algorithm != s.algorithm ||
		(e.Completed != nil) != timed || e.Retired != (s.err == nil) || (e.State == "completed") != (s.err == nil)):
		return fmt.Sprintf("its end is %v by %q", status, s.algorithm)
	case s.message && !pending && s.err == nil && *e.Chorus.Peer != e.InSizes[0][0]-1:
		return "its source"
	}
	return ""
}

// TestSnapshotBetweenSteps has the owner go on between two loads of a snapshot, for each of these, and by one step or
// many. Built with the tag steps it goes on from one store to the next.
func TestSnapshotBetweenSteps(t *testing.T) {
	defer func() { between = nil }()
	const entries = 4
	for _, many := range testutil.Pick([]int{1, 30}, []int{1, 2, 5, 30}) {
		for at, loads := 0, 1; at <= loads; at++ {
			r := newRecorder(&Rank{Settings: Settings{Entries: entries}}, "world", 0, []int{0}, entries)
			ops := make([]*scripted, testutil.Pick(12, 24))
			next, stop := iter.Pull(script(r, ops))
			var all []Entry
			for on := true; on; {
				over := slices.Clone(ops)
				for n, s := range ops {
					if s != nil {
						x := *s
						over[n] = &x
					}
				}
				load := 0
				between = func() {
					if load == at {
						for range many {
							_, on = next()
						}
					}
					load++
				}
				_, all = r.snapshot(0, timeline{1}, placer{})
				loads = max(loads, load)
				for load <= at { // the snapshot had fewer
					between()
				}
				for _, e := range all {
					n := e.InSizes[0][0] - 1
					if ops[n] == nil {
						t.Fatalf("operation %d before it was: %+v", n, e)
					}
					if wrong := ops[n].check(&e, over[n] != nil && over[n].over); wrong != "" {
						t.Fatalf("%d steps at load %d: operation %d: %s: %+v", many, at, n, wrong, e)
					}
				}
			}
			between = nil
			if _, all = r.snapshot(0, timeline{1}, placer{}); len(all) != 2*entries {
				t.Errorf("%d entries are kept, want %d", len(all), 2*entries)
			}
			stop()
		}
	}
}
