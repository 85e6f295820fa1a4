package chaos

import (
	"fmt"
	"os"
	"slices"

	"github.com/chorus-comms/chorus/observe"
)

// A round of Stale runs its program twice, as a job of one name with one directory of dumps, each time with processes of
// its own. The dumps must tell afterwards of the second time.

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
	if err := r.life(o, dir, fmt.Sprintf("round%d", round), false); err != nil {
		return err
	}
	if o.Stuck == "" {
		o.explain(dir)
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

// explain notes what the dumps of a directory should tell of a round, and don't: who the culprit is. The earlier one
// isn't it, nor is anybody else.
func (o *Outcome) explain(dir string) {
	note := func(format string, args ...any) { o.unexplained = append(o.unexplained, fmt.Sprintf(format, args...)) }
	culprit := o.Program.Fault.Rank
	dumps, err := observe.ReadDir(dir, dumpEntries)
	if err != nil {
		note("the dumps: %v", err)
		return
	}
	var ranks []int
	for _, d := range dumps {
		ranks = append(ranks, d.Chorus.Rank)
	}
	world := slices.Clone(o.Program.Comms[0].Members)
	if want := slices.DeleteFunc(world, func(m int) bool { return m == culprit }); !slices.Equal(ranks, want) {
		note("the last life's dumps are those of ranks %v, not of %v", ranks, want)
	}
	said := observe.Explain(dumps)
	named := func(rep *Report) bool {
		return rep != nil && slices.ContainsFunc(rep.Failures, func(x Failure) bool { return slices.Contains(x.Named, culprit) })
	}
	// Ranks that have only waited for a message of any rank can't say whose.
	if len(said.Findings) == 0 && slices.ContainsFunc(o.Reports, named) {
		note("the dumps blame nobody for what rank %d did", culprit)
	}
	for _, f := range said.Findings {
		if !slices.Equal(f.Ranks, []int{culprit}) {
			note("the dumps blame %v for what rank %d did: %v", f.Ranks, culprit, f)
		}
	}
}

// dumpEntries is of how many operations the dumps are read.
const dumpEntries = 256
