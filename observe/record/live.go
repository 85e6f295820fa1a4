package record

import (
	"fmt"
	"os"
	"time"
)

// Live is what a rank does at this moment: what `chorus top` shows of it.
type Live struct {
	Job   string     `json:"job"`
	Rank  int        `json:"rank"`
	Size  int        `json:"size"`
	Host  string     `json:"host"`
	Pid   int        `json:"pid"`
	Time  int64      `json:"time_ns"` // since 1970
	Comms []LiveComm `json:"comms"`

	Started int64 `json:"started_ns,omitempty"` // when the process began, or loaded the library; since 1970
	Attempt int   `json:"attempt,omitempty"`    // how often the launcher had started the ranks again

	Where *Party `json:"where,omitempty"` // where a Python program is that is in no operation
}

// LiveComm is a communicator of a rank, with the operation that it's in. Counts are since it was made.
type LiveComm struct {
	Name    string `json:"name"`
	Rank    int    `json:"rank"`
	Members []int  `json:"members"` // ranks of the job, by rank of the communicator
	Index   int    `json:"index"`   // among those of the same name and members, as the rank made them; from 0
	Ops     uint64 `json:"ops"`     // operations that were called
	// Of this rank's tensors in them: of an operation's inputs or outputs, whichever are more.
	Bytes uint64 `json:"bytes"`
	Last  uint64 `json:"last"` // number of the last collective that was begun

	Took []Latency `json:"took,omitempty"`

	// The operation under way that began first; empty without one.
	Op    string  `json:"op,omitempty"`
	Seq   uint64  `json:"seq,omitempty"` // 0 for a message
	For   float64 `json:"for_s,omitempty"`
	At    string  `json:"at,omitempty"`    // file:line (function)
	Cause string  `json:"cause,omitempty"` // why the communicator is broken
}

// ID is equal for the parts of one communicator on its ranks, and of no other. An exception: some ranks made the next
// one of that name and these members before they closed an older one, and others after.
func (c *LiveComm) ID() string { return fmt.Sprint(c.Name, c.Members, c.Index) }

// Label is the name, with a number if there are others of that name and these members.
func (c *LiveComm) Label() string {
	if c.Index == 0 {
		return c.Name
	}
	return fmt.Sprintf("%s (%d)", c.Name, c.Index+1)
}

// LiveAll returns what the ranks of this process do now. Usually that's one.
func LiveAll() []*Live {
	var live []*Live
	for _, r := range all() {
		live = append(live, r.Live())
	}
	return live
}

// Live returns what the rank does now. It needs no lock that an operation holds.
func (r *Rank) Live() *Live {
	line, place := calibrate(), placer{}
	host, _ := os.Hostname()
	now := time.Now()
	l := &Live{Job: r.job, Rank: r.rank, Size: r.size, Host: host, Pid: os.Getpid(), Time: now.UnixNano(),
		Started: processBegan.UnixNano(), Attempt: r.Attempt, Comms: []LiveComm{}}
	var last *cell
	var in *Recorder
	for _, c := range r.recorders() {
		x := LiveComm{Name: c.name, Rank: c.me, Members: c.members, Index: c.nth, Ops: c.recorded(), Bytes: c.bytes()}
		var first *cell
		for s := range c.all() {
			if s.started != 0 {
				x.Last = max(x.Last, s.seq)
			}
			if s.ended == 0 && s.started != 0 && (first == nil || s.started < first.started) {
				first = &s
			}
		}
		if first != nil {
			e := c.entry(first, line, nil, place)
			x.Op, x.Seq, x.At = Call(&e), e.Seq, CallSite(e.Frames)
			x.For = max(0, now.Sub(time.Unix(0, line.at(first.started))).Seconds())
		}
		c.cold.Lock()
		if c.cold.took == nil {
			c.cold.took = new(latencies)
		}
		x.Took = c.cold.took.look(c, line, place)
		if c.cold.cause != nil {
			x.Cause = c.cold.cause.Error()
		}
		c.cold.Unlock()
		l.Comms = append(l.Comms, x)
		for s := range c.all() {
			if last == nil || s.later(last) {
				last, in = &s, c
			}
		}
	}
	if last == nil || last.ended != 0 {
		if all := threads(); len(all) > 0 {
			var e *Entry
			if last != nil {
				x := in.entry(last, line, nil, place)
				e = &x
			}
			l.Where = &Party{Ranks: []int{r.rank}, After: After(e)}
			l.Where.Does, l.Where.At = InProgram(all, e)
		}
	}
	return l
}
