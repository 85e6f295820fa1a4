package observe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
)

// Top is what the ranks of a job do at a moment, and how fast, as `chorus top` shows it.
type Top struct {
	Job    string    `json:"job"`
	Ranks  int       `json:"ranks"` // that answered
	Silent []Silent  `json:"silent"`
	Rows   []TopRow  `json:"rows"`
	Waits  []TopWait `json:"waits"`
	Where  []Party   `json:"where"` // ranks of Python programs that are in no operation
}

// TopRow is a communicator of a rank. Rates are since the look before; negative without one.
type TopRow struct {
	Rank        int     `json:"rank"` // of the job
	Pid         int     `json:"pid"`
	OpsPerSec   float64 `json:"ops_per_s"`
	BytesPerSec float64 `json:"bytes_per_s"`
	LiveComm
}

// Silent is a rank that didn't answer.
type Silent struct {
	Rank  int    `json:"rank"`
	Dead  bool   `json:"dead"`            // else it's stopped, or stuck in the kernel
	State string `json:"state,omitempty"` // "stopped", by a signal or a debugger, if that's seen; or what it said
}

// TopWait is a collective that some ranks of a communicator have entered and others have not. Ranks are the job's, as
// far as they answered, or should have.
type TopWait struct {
	Comm    string  `json:"comm"`
	Op      string  `json:"op"`
	Seq     uint64  `json:"seq"`
	Waiting []int   `json:"waiting"`
	For     []int   `json:"for"`
	Longest float64 `json:"longest_s"`
}

// NewTop puts together what ranks answered; before is what they answered at the look before, or nil.
func NewTop(before, now []Answer) *Top {
	t := &Top{Silent: []Silent{}, Rows: []TopRow{}, Waits: []TopWait{}, Where: []Party{}}
	type key struct {
		pid  int
		comm string
	}
	old := map[key]*LiveComm{}
	at := map[int]int64{} // by process
	for _, a := range before {
		if a.Live == nil {
			continue
		}
		at[a.Live.Pid] = a.Live.Time
		for i := range a.Live.Comms {
			c := &a.Live.Comms[i]
			old[key{a.Live.Pid, fmt.Sprint(a.Live.Rank, c.ID())}] = c
		}
	}
	for _, a := range now {
		l := a.Live
		if l == nil {
			if rank, ok := rankOfSocket(a.Path); ok {
				t.Silent = append(t.Silent, a.silent(rank))
			}
			continue
		}
		t.Job = l.Job
		t.Ranks++
		if l.Where != nil {
			t.Where = append(t.Where, *l.Where)
		}
		for _, c := range l.Comms {
			row := TopRow{Rank: l.Rank, Pid: l.Pid, OpsPerSec: -1, BytesPerSec: -1, LiveComm: c}
			// Else it's a new one.
			if o, since := old[key{l.Pid, fmt.Sprint(l.Rank, c.ID())}], float64(l.Time-at[l.Pid])/1e9; o != nil &&
				o.Ops <= c.Ops && since > 0 {
				row.OpsPerSec, row.BytesPerSec = float64(c.Ops-o.Ops)/since, float64(c.Bytes-o.Bytes)/since
			}
			t.Rows = append(t.Rows, row)
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b TopRow) int { return a.Rank - b.Rank })
	slices.SortFunc(t.Where, func(a, b Party) int { return a.Ranks[0] - b.Ranks[0] })
	slices.SortFunc(t.Silent, func(a, b Silent) int { return a.Rank - b.Rank })
	t.findWaits()
	return t
}

// TopOf returns what the ranks of a job did when they made their dumps. Those that are silent are listed so, unless
// they have left a dump.
func TopOf(dumps []*Dump, silent ...Silent) *Top {
	answers := make([]Answer, len(dumps))
	for i, d := range dumps {
		h := &d.Chorus
		l := &Live{Job: h.Job, Rank: h.Rank, Size: h.Size, Host: h.Host, Pid: h.Pid, Time: h.Time, Comms: []LiveComm{}}
		alike := map[string]int{}
		for _, c := range h.Comms {
			x := LiveComm{Name: c.Name, Rank: c.Rank, Members: c.Members, Ops: c.Recorded}
			x.Index = alike[x.ID()]
			alike[x.ID()]++
			if c.Failure != nil {
				x.Cause = c.Failure.Message
			}
			l.Comms = append(l.Comms, x)
		}
		var last *Entry
		busy := false
		for j := range d.Entries {
			e := &d.Entries[j]
			c := &l.Comms[e.Chorus.Comm]
			if e.Started != nil {
				c.Last = max(c.Last, e.Seq)
			}
			last = e
			if e.Chorus.Status == record.Pending.String() && e.Started != nil && c.Op == "" {
				c.Op, c.Seq, c.At, c.For = record.Call(e), e.Seq, record.CallSite(e.Frames), waited(d, e)
				busy = true
			}
		}
		if all := h.Threads; len(all) > 0 && !busy {
			l.Where = &Party{Ranks: []int{h.Rank}, After: record.After(last)}
			l.Where.Does, l.Where.At = record.InProgram(all, last)
		}
		answers[i].Live = l
	}
	t := NewTop(nil, answers)
	for _, s := range silent {
		if !slices.ContainsFunc(dumps, func(d *Dump) bool { return d.Chorus.Rank == s.Rank }) {
			t.Silent = append(t.Silent, s)
		}
	}
	return t
}

// silent says of a rank that didn't answer what is known of it.
func (a *Answer) silent(rank int) Silent {
	s := Silent{Rank: rank, State: a.State, Dead: errors.Is(a.Err, syscall.ECONNREFUSED) || errors.Is(a.Err,
		syscall.ENOENT)}
	if no, ok := errors.AsType[*RefusedError](a.Err); ok {
		s.State = "can't write it: " + no.Why
	}
	return s
}

// SilentOf returns the ranks that didn't answer.
func SilentOf(answers []Answer) []Silent {
	var all []Silent
	for i := range answers {
		if rank, ok := rankOfSocket(answers[i].Path); ok && answers[i].Err != nil {
			all = append(all, answers[i].silent(rank))
		}
	}
	return all
}

// String is a sentence: which rank it is, and why it's silent.
func (s Silent) String() string { return fmt.Sprintf("rank %d %s", s.Rank, s.why()) }

func (s Silent) why() string {
	switch {
	case s.Dead:
		return "is dead"
	case s.State == stopped:
		return "does not answer: it's stopped, by a signal or a debugger"
	case s.State != "":
		return s.State
	}
	return "does not answer: it's stopped, or stuck in the kernel"
}

func rankOfSocket(path string) (int, bool) {
	name := record.NameOf(path)
	rank, err := strconv.Atoi(name[strings.LastIndexByte(name, '_')+1:])
	return rank, err == nil && rank >= 0
}

func (t *Top) findWaits() {
	seen := map[string]bool{}
	for _, first := range t.Rows {
		key := first.ID()
		if seen[key] {
			continue
		}
		seen[key] = true
		var w TopWait
		for _, r := range t.Rows { // the furthest collective that a rank is in
			if r.ID() == key && r.Op != "" && r.Seq > w.Seq {
				w.Comm, w.Op, w.Seq = r.Label(), r.Op, r.Seq
			}
		}
		if w.Seq == 0 {
			continue
		}
		for _, r := range t.Rows {
			switch {
			case r.ID() != key:
			case r.Seq == w.Seq && r.Op != "":
				w.Waiting, w.Longest = append(w.Waiting, r.Rank), max(w.Longest, r.LiveComm.For)
			case r.Last < w.Seq:
				w.For = append(w.For, r.Rank)
			}
		}
		for _, s := range t.Silent {
			if slices.Contains(first.Members, s.Rank) {
				w.For = append(w.For, s.Rank)
			}
		}
		if len(w.For) > 0 {
			slices.Sort(w.For)
			t.Waits = append(t.Waits, w)
		}
	}
}

// String is a table of the ranks, and which ranks wait for which.
func (t *Top) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %q: %d ranks answer\n\n", t.Job, t.Ranks)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rank\tpid\tcommunicator\tops/s\tbytes/s\toperation\tfor\tat")
	where := map[int]string{} // of ranks that are in no operation
	for _, p := range t.Where {
		for _, r := range p.Ranks {
			where[r] = p.At
		}
	}
	for _, r := range t.Rows {
		ops, bytes := "", ""
		if r.OpsPerSec >= 0 {
			ops, bytes = fmt.Sprintf("%.0f", r.OpsPerSec), scaled(r.BytesPerSec)
		}
		what, wait := "none since #"+fmt.Sprint(r.Last), ""
		switch {
		case r.Ops == 0:
			what = "none yet"
		case r.Cause != "":
			what = "broken: " + r.Cause
		case r.Op != "":
			what = r.Op
			if r.Seq != 0 {
				what += fmt.Sprintf(" #%d", r.Seq)
			}
			wait = time.Duration(r.LiveComm.For * 1e9).Round(time.Microsecond).String()
			if r.LiveComm.For >= 0.01 {
				wait = fmt.Sprintf("%.2fs", r.LiveComm.For)
			}
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Rank, r.Pid, plain.Line(r.Label()), ops, bytes, plain.Line(what),
			wait, plain.Line(cmp.Or(r.At, where[r.Rank])))
	}
	w.Flush()
	for _, s := range t.Silent {
		fmt.Fprintln(&b, s)
	}
	if len(t.Waits) > 0 {
		b.WriteByte('\n')
	}
	for _, x := range t.Waits {
		verb := "waits"
		if len(x.Waiting) > 1 {
			verb = "wait"
		}
		fmt.Fprintf(&b, "%s %s for %s in %s #%d of %q, for %.2f s\n", record.RankNames(x.Waiting), verb, record.RankNames(x.For),
			plain.Line(x.Op), x.Seq, x.Comm, x.Longest)
		for _, p := range t.Where {
			if slices.Contains(x.For, p.Ranks[0]) {
				fmt.Fprintf(&b, "  %v\n", p)
			}
		}
	}
	return b.String()
}

// scaled shows a number of bytes with three digits.
func scaled(n float64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if n < 999.5 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g TB", n)
}
