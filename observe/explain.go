package observe

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
)

// Explain finds out from the dumps of a job's ranks which are to blame. The dumps are as ReadDir returns them. Of ranks
// that don't answer, as SilentOf returns them, it says why; a dump of one that's stopped is from before, and doesn't
// count.
func Explain(dumps []*Dump, silent ...Silent) *Report {
	x := &explainer{waits: map[int]*stall{}, silent: silent}
	r := &Report{Findings: []Finding{}, Missing: []int{}}
	if len(dumps) == 0 {
		return r
	}
	r.Job, r.Size = dumps[0].Chorus.Job, dumps[0].Chorus.Size
	x.dumps = make([]*Dump, r.Size)
	for _, d := range dumps {
		if slices.ContainsFunc(silent, func(s Silent) bool { return s.Rank == d.Chorus.Rank && s.State == stopped }) {
			continue
		}
		x.dumps[d.Chorus.Rank] = d
		x.spread = max(x.spread, float64(d.Chorus.Time-dumps[0].Chorus.Time)/1e9,
			float64(dumps[0].Chorus.Time-d.Chorus.Time)/1e9)
	}
	for rank, d := range x.dumps {
		if d == nil {
			r.Missing = append(r.Missing, rank)
		}
	}
	x.collect()
	for _, g := range x.groups {
		x.examine(g)
	}
	for rank, d := range x.dumps {
		if d != nil {
			x.messages(rank, d)
		}
	}
	x.blame()
	if len(x.findings) == 0 {
		for _, g := range x.groups {
			x.unknown(g)
		}
	}
	if len(x.stalls) == 0 {
		for _, g := range x.groups {
			x.slow(g)
		}
	}
	// A rank that is gone is gone from all its communicators; those in which no rank waits for it add nothing.
	x.findings = slices.DeleteFunc(x.findings, func(f Finding) bool {
		return f.Op == nothing && len(f.Ranks) > 0 && slices.ContainsFunc(x.findings,
			func(o Finding) bool { return o.Op != nothing && o.Op != "" && slices.Contains(o.Ranks, f.Ranks[0]) })
	})
	for i := range x.findings {
		f := &x.findings[i]
		panicked := func(rank int) bool { return x.dumps[rank] != nil && x.dumps[rank].Chorus.Panics }
		if (f.Kind == KindMissing || f.Kind == KindAborted || f.Kind == KindLeft) && !slices.ContainsFunc(f.Ranks,
			func(r int) bool { return !panicked(r) }) {
			f.Kind = KindPanicked
		}
		raised := func(rank int) bool { return x.dumps[rank] != nil && x.dumps[rank].Chorus.Raised != nil }
		if (f.Kind == KindMissing || f.Kind == KindAborted || f.Kind == KindLeft) && !slices.ContainsFunc(f.Ranks,
			func(r int) bool { return !raised(r) }) {
			f.Kind = KindRaised
		}
	}
	slices.SortStableFunc(x.findings, func(a, b Finding) int { return cmp.Compare(severity[a.Kind], severity[b.Kind]) })
	r.Findings = append(r.Findings, x.findings...)
	return r
}

// nothing stands for the operation of a communicator that broke while no rank was in one.
const nothing = "no operation"

// severity orders findings: those that are causes by themselves first.
var severity = map[Kind]int{KindMismatch: 0, KindOrder: 0, KindCrossed: 1, KindRefused: 2, KindAborted: 2,
	KindPanicked: 2, KindRaised: 2, KindNoDump: 3, KindLeft: 4,
	KindMissing: 5, KindEngine: 5, KindLost: 6, KindSlow: 7, KindUnknown: 8}

type explainer struct {
	dumps    []*Dump // by rank; nil if there is none
	silent   []Silent
	groups   []*group
	stalls   []*stall
	waits    map[int]*stall // what each rank is stuck in
	spread   float64        // seconds between the first and the last dump
	findings []Finding
}

// group is a communicator as its members saw it.
type group struct {
	name    string
	members []int
	views   []view // by rank of the communicator
}

// view is one member's part in a communicator.
type view struct {
	dump    *Dump
	state   *CommState // nil if the member's dump doesn't have the communicator
	entries []*Entry   // collectives, splits and windows
	at      *Entry     // the first that is not done
	pos     uint64     // of at; see position
	behind  *Entry     // in at's place, one that is on a stream behind other work
}

// stall is something that ranks are stuck in. Ranks are the job's.
type stall struct {
	comm    string
	entry   *Entry // of one of the waiting ranks
	seq     uint64
	waiting []Party
	missing []int
	group   *group // nil for messages
}

// collect finds the communicators. The same name with other members is another one.
func (x *explainer) collect() {
	index := map[string]*group{}
	for _, d := range x.dumps {
		if d == nil {
			continue
		}
		own := make([]*view, len(d.Chorus.Comms))
		for i := range d.Chorus.Comms {
			st := &d.Chorus.Comms[i]
			key := st.Name + "\x00" + fmt.Sprint(st.Members)
			g := index[key]
			if g == nil {
				g = &group{name: st.Name, members: st.Members, views: make([]view, len(st.Members))}
				for m, rank := range g.members {
					g.views[m].dump = x.dumps[rank]
				}
				index[key] = g
				x.groups = append(x.groups, g)
			}
			own[i] = &g.views[st.Rank]
			own[i].state = st
		}
		for i := range d.Entries {
			e := &d.Entries[i]
			if v := own[e.Chorus.Comm]; !e.PointToPoint {
				v.entries = append(v.entries, e)
			}
		}
	}
	for _, g := range x.groups {
		for m := range g.views {
			g.views[m].stop()
		}
	}
}

// Positions order what the members of a communicator do: a collective has twice its number, and what has none, such as
// a split, comes after the collective before it.
func (v *view) stop() {
	if v.state == nil {
		return
	}
	done, queued := v.state.Done, uint64(0)
	for _, e := range v.entries {
		if s := e.Chorus.Status; s == record.Done.String() || s == record.Refused.String() {
			continue
		}
		switch {
		case special(e):
			v.pos = 2*(done+queued) + 1
		case e.Seq != 0:
			v.pos = 2 * e.Seq
		case e.Started == nil:
			v.behind = e
			return
		default:
			queued++
			v.pos = 2 * (done + queued)
		}
		v.at = e
		return
	}
}

func special(e *Entry) bool { return record.IsSpecial(e.Chorus.Op) }

// passed returns the position up to which the member has done everything.
func (v *view) passed() uint64 {
	if v.state == nil {
		return 0
	}
	return 2 * v.state.Done
}

// entryAt returns the member's collective with a position, or nil.
func (v *view) entryAt(pos uint64) *Entry {
	if v.at != nil && v.pos == pos {
		return v.at
	}
	for i := len(v.entries) - 1; i >= 0 && pos%2 == 0; i-- {
		if v.entries[i].Seq == pos/2 {
			return v.entries[i]
		}
	}
	return nil
}

// examine finds out where the members of a communicator are stuck, if they are, and whether they agree.
func (x *explainer) examine(g *group) {
	var positions []uint64
	for m := range g.views {
		if v := &g.views[m]; v.at != nil {
			positions = append(positions, v.pos)
		}
	}
	slices.Sort(positions)
	positions = slices.Compact(positions)
	if len(positions) == 0 {
		x.failed(g, nil)
	}
	// Where all have arrived, no rank is stuck: some were just about to leave when a later operation failed.
	for i, pos := range positions {
		s, longest := g.stall(pos, positions[:i])
		if x.disagree(g, s, pos) {
			return
		}
		if len(s.missing) == 0 && i+1 < len(positions) {
			continue
		}
		if x.failed(g, s) {
			return
		}
		if longest < x.spread && !g.broken() { // the dumps of a job that goes on were not all made at once
			return
		}
		x.stalls = append(x.stalls, s)
		for m := range g.views {
			if v := &g.views[m]; v.at != nil && v.pos == pos && (!v.at.Chorus.Async || x.waits[g.members[m]] == nil) {
				x.waits[g.members[m]] = s
			}
		}
		return
	}
}

// stall returns which members have arrived at a position, the longest wait there in seconds, and which have not.
// Members at a position that they can leave are neither.
func (g *group) stall(pos uint64, leaving []uint64) (*stall, float64) {
	s := &stall{comm: g.name, seq: pos / 2 * (1 - pos%2), group: g}
	var waiting []Party
	longest := 0.0
	for m := range g.views {
		v := &g.views[m]
		rank := g.members[m]
		switch {
		case v.at != nil && v.pos == pos:
			if s.entry == nil {
				s.entry = v.at
			}
			p := Party{Ranks: []int{rank}, Does: record.Numbered(v.at, s.seq) + v.engine(), At: record.CallSite(v.at.Frames),
				Waited: waited(v.dump, v.at)}
			waiting = append(waiting, p)
			longest = max(longest, p.Waited)
		case v.passed() < pos && (v.at == nil || !slices.Contains(leaving, v.pos)):
			s.missing = append(s.missing, rank)
		}
	}
	s.waiting = gather(waiting)
	return s, longest
}

// signature is what all ranks of a collective have in common: sizes only where they must agree.
func signature(e *Entry) string {
	d := &e.Chorus
	var counts []int
	switch kind := backend.KindNamed(d.Op); {
	case kind.Valid():
		in, out := kind.Operation().SameSizes()
		if in {
			counts = append(counts, e.InSizes[0][0])
		}
		if out {
			counts = append(counts, e.OutSizes[0][0])
		}
	case d.Op != record.Split.String() && d.Op != record.NewWindow.String() && d.Op != record.CloseWindow.String():
		counts = []int{e.InSizes[0][0], e.OutSizes[0][0]}
	}
	return fmt.Sprintf("%s %s %d %d %s", d.Op, d.DType, counts, d.Root, d.Reduce)
}

// disagree looks for members that call something else than the most under one number.
func (x *explainer) disagree(g *group, s *stall, pos uint64) bool {
	calls := map[string][]int{}
	for m := range g.views {
		if e := g.views[m].entryAt(pos); e != nil {
			calls[signature(e)] = append(calls[signature(e)], m)
		}
	}
	if len(calls) < 2 {
		return false
	}
	norm := ""
	for sig, ms := range calls {
		if n := calls[norm]; len(ms) > len(n) || len(ms) == len(n) && ms[0] < n[0] {
			norm = sig
		}
	}
	f := Finding{Kind: KindMismatch, Comm: g.name, Seq: s.seq}
	tie := true
	var culprits, waiting []Party
	for m := range g.views {
		v := &g.views[m]
		e := v.entryAt(pos)
		if e == nil {
			continue
		}
		p := Party{Ranks: []int{g.members[m]}, Does: record.Numbered(e, s.seq), At: record.CallSite(e.Frames)}
		if signature(e) == norm {
			if e == v.at {
				p.Waited = waited(v.dump, e)
			}
			waiting = append(waiting, p)
			f.Op = record.Call(e)
			continue
		}
		tie = tie && len(calls[signature(e)]) == len(calls[norm])
		culprits = append(culprits, p)
		f.Ranks = append(f.Ranks, g.members[m])
		if slices.ContainsFunc(v.entries,
			func(later *Entry) bool { return later.Seq == 0 && !special(later) && signature(later) == norm }) {
			f.Kind = KindOrder
		}
	}
	if tie {
		f.Detail = "equally many ranks make each call: the culprit may be on either side"
	}
	f.Culprits, f.Waiting = gather(culprits), gather(waiting)
	x.findings = append(x.findings, f)
	return true
}

// failed reports what the communicator's own first cause tells and the entries don't: that a rank timed out, or that a
// link broke between ranks that live.
func (x *explainer) failed(g *group, s *stall) bool {
	first := g.first()
	if first == nil || first.Peer == nil || *first.Peer < 0 || *first.Peer >= len(g.members) {
		return false
	}
	peer := *first.Peer
	rank := g.members[peer]
	if g.passesOn(peer) {
		return false // why it gave up tells more
	}
	if first.Kind == record.PeerLost.String() && x.dumps[rank] != nil && s != nil && len(s.missing) > 0 {
		return false // it ended after it had failed elsewhere: what it was stuck in tells more
	}
	f := Finding{Comm: g.name, Op: first.Op, Seq: first.Seq, Ranks: []int{rank}, Detail: first.Message}
	switch {
	case s != nil:
		f.Op, f.Seq = record.Call(s.entry), s.seq
	case f.Op == "":
		f.Op = nothing
	}
	v := &g.views[peer]
	switch {
	case first.Kind == record.Aborted.String():
		f.Kind = KindAborted
	case first.Kind == record.PeerLost.String() && v.dump == nil:
		f.Kind = KindNoDump
	case first.Kind == record.PeerLost.String() && v.state == nil:
		f.Kind = KindLeft
	case first.Kind == record.PeerLost.String():
		f.Kind = KindLost
	default:
		return false
	}
	f.Culprits = []Party{x.party(rank, v, s)}
	if s != nil {
		for _, p := range s.waiting {
			p.Ranks = slices.DeleteFunc(slices.Clone(p.Ranks), func(r int) bool { return r == rank })
			if len(p.Ranks) > 0 {
				f.Waiting = append(f.Waiting, p)
			}
		}
	}
	x.findings = append(x.findings, f)
	return true
}

// party says what a member does that is to blame.
func (x *explainer) party(rank int, v *view, s *stall) Party {
	p := Party{Ranks: []int{rank}}
	switch {
	case v != nil && v.dump == nil || x.dumps[rank] == nil:
		p.Does = "left no dump"
		for _, s := range x.silent {
			if s.Rank == rank {
				p.Does += "; it " + s.why()
			}
		}
		return p
	case v != nil && v.at != nil:
		p.Does, p.At = record.Numbered(v.at, v.at.Seq), record.CallSite(v.at.Frames)
		return p
	case v != nil && v.behind != nil:
		p.Does, p.At = record.Call(v.behind)+", to which its stream has not come yet", record.CallSite(v.behind.Frames)
		return p
	}
	var last *Entry
	if v != nil && len(v.entries) > 0 {
		last = v.entries[len(v.entries)-1]
	} else if d := x.dumps[rank]; len(d.Entries) > 0 {
		last = &d.Entries[len(d.Entries)-1]
	}
	if r := x.dumps[rank].Chorus.Raised; r != nil {
		p.Does, p.At, p.After = r.What+" in "+r.At.Name, r.At.Place(), record.After(last)
		return p
	}
	if all := x.dumps[rank].Chorus.Threads; len(all) > 0 {
		p.Does, p.At = record.InProgram(all, last)
		p.After = record.After(last)
		return p
	}
	p.Does, p.At = whereabouts(x.dumps[rank], last)
	if last != nil {
		p.Does += fmt.Sprintf(" after %s", record.Numbered(last, last.Seq))
		if at := record.CallSite(last.Frames); at != "" {
			p.Does += " of " + at
		}
	}
	return p
}

// broken reports whether a member says that the communicator has failed, or will never come back to it, since its
// program ends by a panic or an exception.
func (g *group) broken() bool {
	return slices.ContainsFunc(g.views, func(v view) bool {
		return v.state != nil && v.state.Failure != nil || v.dump != nil && v.dump.Chorus.Ends()
	})
}

// waited returns for how many seconds an operation had gone on when the dump was made, or until it failed.
func waited(d *Dump, e *Entry) float64 {
	until := d.Chorus.Time
	if e.Completed != nil {
		until = *e.Completed
	}
	return float64(until-e.Created) / 1e9
}

// messages finds the receives and sends in which a rank is stuck.
func (x *explainer) messages(rank int, d *Dump) {
	for i := range d.Entries {
		e := &d.Entries[i]
		c := &d.Chorus.Comms[e.Chorus.Comm]
		late := e.Chorus.Status == record.TimedOut.String()
		switch {
		case !e.PointToPoint || !late && e.Chorus.Status != record.Pending.String():
			continue
		case e.Chorus.Async && !(late && c.Failure != nil): // the program may do anything else meanwhile
			continue
		case late && goesOn(d, i): // a message that is late breaks nothing
			continue
		case waited(d, e) < x.spread && !(late && c.Failure != nil):
			continue
		}
		peer := *e.Chorus.Peer
		if peer < 0 || peer >= len(c.Members) { // -1 is any source
			if late && x.waits[rank] == nil {
				x.waits[rank] = &stall{comm: c.Name, entry: e} // it can't say for whom it has waited
			}
			continue
		}
		s := &stall{comm: c.Name, entry: e, missing: []int{c.Members[peer]}, waiting: []Party{{Ranks: []int{rank},
			Does: record.Call(e), At: record.CallSite(e.Frames), Waited: waited(d, e)}}}
		x.stalls = append(x.stalls, s)
		x.waits[rank] = s
		return
	}
}

// blame follows, from each stall, the ranks that its ranks wait for, until one waits for none, or a circle closes.
func (x *explainer) blame() {
	reported := map[*stall]bool{}
	for _, s := range x.stalls {
		if circle := x.circle(s); circle != nil {
			if !slices.ContainsFunc(circle, func(c *stall) bool { return reported[c] }) {
				x.crossed(circle)
			}
			for _, c := range circle {
				reported[c] = true
			}
		}
	}
	for _, s := range x.stalls {
		if !reported[s] {
			x.absent(s)
			x.engines(s)
		}
	}
}

// circle returns the stalls through which the ranks of s wait for each other, or nil.
func (x *explainer) circle(s *stall) []*stall {
	var path []*stall
	seen := map[*stall]bool{}
	var walk func(at *stall) bool
	walk = func(at *stall) bool {
		seen[at] = true
		path = append(path, at)
		for _, m := range at.missing {
			next := x.waits[m]
			if next == s || next != nil && !seen[next] && walk(next) {
				return true
			}
		}
		path = path[:len(path)-1]
		return false
	}
	if walk(s) {
		return path
	}
	return nil
}

func (x *explainer) crossed(circle []*stall) {
	f := Finding{Kind: KindCrossed, Comm: circle[0].comm, Op: record.Call(circle[0].entry), Seq: circle[0].seq}
	for i, s := range circle {
		before := circle[(i+len(circle)-1)%len(circle)]
		for _, p := range s.waiting {
			p.Does += fmt.Sprintf(" of %q", s.comm)
			for _, r := range p.Ranks { // of many that wait in it, those that the stall before waits for
				if slices.Contains(before.missing, r) {
					f.Ranks = append(f.Ranks, r)
				}
			}
			f.Culprits = append(f.Culprits, p)
		}
	}
	slices.Sort(f.Ranks)
	f.Ranks = slices.Compact(f.Ranks)
	x.findings = append(x.findings, f)
}

// absent blames the ranks that a stall waits for and that wait for none themselves.
func (x *explainer) absent(s *stall) {
	byKind := map[Kind]*Finding{}
	refused := s.refusals()
	for _, rank := range s.missing {
		if x.waits[rank] != nil {
			continue // what it waits for is a stall of its own
		}
		var v *view
		if s.group != nil {
			v = &s.group.views[slices.Index(s.group.members, rank)]
		}
		p := x.party(rank, v, s)
		kind := KindMissing
		switch {
		case x.dumps[rank] == nil:
			kind = KindNoDump
		case refused[rank] != "":
			kind = KindRefused
			p.Does = refused[rank] + "; " + p.Does
		case v != nil && v.state == nil:
			kind = KindLeft
		case v != nil && gaveUp(v.state):
			kind = KindAborted
			p.Does = v.state.Failure.Message + "; " + p.Does
		}
		f := byKind[kind]
		if f == nil {
			f = &Finding{Kind: kind, Comm: s.comm, Op: record.Call(s.entry), Seq: s.seq, Waiting: s.waiting}
			byKind[kind] = f
		}
		f.Ranks = append(f.Ranks, rank)
		f.Culprits = append(f.Culprits, p)
	}
	for _, f := range byKind {
		f.Culprits = gather(f.Culprits)
		x.findings = append(x.findings, *f)
	}
}

// gaveUp reports whether it was this rank that broke the communicator, by Abort or because its program panicked.
func gaveUp(st *CommState) bool {
	f := st.Failure
	return f != nil && f.Kind == record.Aborted.String() && f.Peer != nil && *f.Peer == st.Rank
}

// refusals returns why members refused their calls, by rank of the job.
func (s *stall) refusals() map[int]string {
	all := map[int]string{}
	if s.group == nil {
		return all
	}
	for m := range s.group.views {
		st := s.group.views[m].state
		if st == nil {
			continue
		}
		if st.Refused != "" && st.RefusedAt == st.Recorded { // nothing was called since
			all[s.group.members[m]] = st.Refused
		}
	}
	return all
}

// slow looks for a rank that the others wait for in most operations: the one whose own wait is the shortest.
// That needs no common clock.
func (x *explainer) slow(g *group) {
	const (
		least = 8   // operations that were timed on all ranks
		often = 0.8 // of them it was the last
		share = 0.2 // of the time from the first to the last the others have waited for it
	)
	if len(g.views) < 2 {
		return
	}
	type timed struct {
		entries []*Entry
	}
	bySeq := map[uint64]*timed{}
	for m := range g.views {
		for _, e := range g.views[m].entries {
			if e.Seq == 0 || e.Started == nil || e.Completed == nil || e.Chorus.Status != record.Done.String() {
				continue
			}
			t := bySeq[e.Seq]
			if t == nil {
				t = &timed{entries: make([]*Entry, len(g.views))}
				bySeq[e.Seq] = t
			}
			t.entries[m] = e
		}
	}
	last := make([]int, len(g.views))
	lost := make([]int64, len(g.views))
	n := 0
	var from, to int64
	for _, t := range bySeq {
		if slices.Contains(t.entries, nil) {
			continue
		}
		n++
		took := make([]int64, len(t.entries))
		for m, e := range t.entries {
			took[m] = *e.Completed - *e.Started
		}
		least := slices.Min(took)
		late := slices.Index(took, least)
		sorted := slices.Sorted(slices.Values(took))
		last[late]++
		lost[late] += sorted[len(sorted)/2] - least
		e := t.entries[late]
		if from == 0 || *e.Started < from {
			from = *e.Started
		}
		to = max(to, *e.Completed)
	}
	for m := range last {
		// Of small operations one in eight is timed, so that the waits that are seen are at least as many as are counted.
		if n < least || float64(last[m]) < often*float64(n) || float64(lost[m]) < share*float64(to-from)/record.TimedPeriod {
			continue
		}
		v := &g.views[m]
		e := v.entries[len(v.entries)-1]
		rank := g.members[m]
		f := Finding{Kind: KindSlow, Comm: g.name, Op: e.Chorus.Op, Ranks: []int{rank},
			Culprits: []Party{{Ranks: []int{rank}, Does: fmt.Sprintf("last in %d of %d timed operations", last[m], n),
				At: record.CallSite(e.Frames)}},
			Detail: fmt.Sprintf("the others waited %.3f s for it in them", float64(lost[m])/1e9)}
		x.findings = append(x.findings, f)
	}
}
