package chaos

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/observe"
)

// A round of Stale runs its program twice, as a job of one name with one directory of dumps, each time with processes
// of its own. The dumps must tell afterwards of the second time.

// before returns the program as it's run the first time: another rank is the culprit.
func (p Program) before() Program {
	p.Fault.Rank, p.Fault.Peer = p.Fault.Peer, p.Fault.Rank
	return p
}

// stale runs a round of Stale.
func (r *runner) stale(o *Outcome, round int) error {
	dir, err := os.MkdirTemp("", "chorus-chaos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	earlier := o.Program.before()
	first := &Outcome{Program: &earlier, Reports: make([]*Report, earlier.Size)}
	if err := r.life(first, dir, fmt.Sprintf("round%d.before", round), true); err != nil {
		return err
	}
	if first.judge(); first.Bad() || !first.Fired {
		*o = *first
		return nil
	}
	began := time.Now()
	if err := r.life(o, dir, fmt.Sprintf("round%d", round), false); err != nil {
		return err
	}
	if o.Stuck == "" {
		o.explain(dir, began)
	}
	return nil
}

// life runs the program of an outcome with new processes, which leave their dumps in a directory.
func (r *runner) life(o *Outcome, dir, name string, before bool) error {
	var ps []*process
	defer func() {
		for _, p := range ps {
			p.end()
		}
	}()
	for range o.Program.Size {
		p, err := start(r.Command, "CHORUS_DUMP_DIR="+dir, "CHORUS_RUN=stale")
		if err != nil {
			return fmt.Errorf("chaos: starting a process: %w", err)
		}
		ps = append(ps, p)
	}
	t := r.task(o.Program)
	t.Name, t.Before = name, before
	var err error
	ps, err = r.ranks(o, ps, t)
	return err
}

// explain notes what the dumps of a directory should say of a round that began at a given time, and don't: who the
// culprit is. Ranks that it has kept from coming to what others were in may stand beside it.
func (o *Outcome) explain(dir string, began time.Time) {
	note := func(format string, args ...any) { o.unexplained = append(o.unexplained, fmt.Sprintf(format, args...)) }
	f := o.Program.Fault
	var witnesses []int // ranks whose errors name the culprit; one that waited for a message of any rank can't
	for _, rep := range o.Reports {
		if rep != nil && slices.ContainsFunc(rep.Failures, func(x Failure) bool { return slices.Contains(x.Named, f.Rank) }) {
			witnesses = append(witnesses, rep.Rank)
		}
	}
	if len(witnesses) == 0 {
		return
	}
	dumps, err := observe.ReadDir(dir, dumpEntries)
	if err != nil {
		note("the dumps: %v", err)
		return
	}
	var ranks, blamed []int
	for _, d := range dumps {
		ranks = append(ranks, d.Chorus.Rank)
		if d.Chorus.Started < began.UnixNano() {
			note("rank %d's dump is of an earlier life", d.Chorus.Rank)
		}
	}
	for _, w := range witnesses {
		if !slices.Contains(ranks, w) {
			note("there is no dump of rank %d", w)
		}
	}
	for _, x := range observe.Explain(dumps).Findings {
		blamed = append(blamed, x.Ranks...)
	}
	if !slices.Contains(blamed, f.Rank) {
		note("the dumps blame %v for what rank %d did", blamed, f.Rank)
	}
}

// dumpEntries is of how many operations the dumps are read.
const dumpEntries = 256
