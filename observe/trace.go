package observe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/chorus-comms/chorus/observe/record"
)

// event is one of Chrome's trace events; times are microseconds.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	Time  float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"` // of complete events, which must have one
	Args  map[string]any `json:"args,omitempty"`
}

// WriteTrace writes dumps as a trace in Chrome's format, which chrome://tracing and Perfetto show: a process for each
// rank, a thread for each communicator. Operations that are still under way last until the dump. Small ones whose end
// wasn't timed last as long as the nearest one like them that was, and at most until the next begins; they're marked as
// estimated.
func WriteTrace(w io.Writer, dumps []*Dump) error {
	b := bufio.NewWriter(w)
	var origin int64
	for _, d := range dumps {
		for i := range d.Entries {
			if t := d.Entries[i].Created; origin == 0 || t < origin {
				origin = t
			}
		}
	}
	separator := `{"displayTimeUnit":"ns","traceEvents":[`
	emit := func(e event) error {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.WriteString(separator + "\n")
		separator = ","
		b.Write(line)
		return nil
	}
	micros := func(t int64) float64 { return float64(t-origin) / 1e3 }
	for _, d := range dumps {
		h := &d.Chorus
		if err := emit(event{Name: "process_name", Phase: "M", Pid: h.Rank,
			Args: map[string]any{"name": fmt.Sprintf("rank %d on %s", h.Rank, h.Host)}}); err != nil {
			return err
		}
		for i, c := range h.Comms {
			if err := emit(event{Name: "thread_name", Phase: "M", Pid: h.Rank, Tid: i,
				Args: map[string]any{"name": c.Name}}); err != nil {
				return err
			}
		}
		if err := engines(d, micros, emit); err != nil {
			return err
		}
		for i := range d.Entries {
			e := &d.Entries[i]
			from := e.Created
			if e.Started != nil {
				from = *e.Started
			}
			ev := event{Name: e.Chorus.Op, Phase: "X", Pid: h.Rank, Tid: e.Chorus.Comm, Time: micros(from),
				Args: map[string]any{"seq": e.Seq, "status": e.Chorus.Status, "in": e.InSizes, "out": e.OutSizes,
					"dtype":     e.Chorus.DType,
					"algorithm": e.Chorus.Algorithm, "at": record.CallSite(e.Frames), "queued_us": float64(from-e.Created) / 1e3}}
			switch {
			case e.Completed != nil:
				ev.Dur = lasted(from, *e.Completed)
			case e.Chorus.Status == record.Pending.String():
				ev.Dur = lasted(from, h.Time)
			default:
				ev.Dur = lasted(from, estimate(d.Entries, i))
				ev.Args["estimated"] = true
			}
			if err := emit(ev); err != nil {
				return err
			}
		}
	}
	if separator != "," {
		b.WriteString(separator)
	}
	b.WriteString("\n]}\n")
	return b.Flush()
}

// engineTid is how far the threads of engines are behind those of their communicators.
const engineTid = 1000

// engines emits the calls of a rank's engines.
func engines(d *Dump, micros func(int64) float64, emit func(event) error) error {
	for i, c := range d.Chorus.Comms {
		if len(c.Engine) == 0 {
			continue
		}
		tid := engineTid + i
		if err := emit(event{Name: "thread_name", Phase: "M", Pid: d.Chorus.Rank, Tid: tid,
			Args: map[string]any{"name": c.Name + ": engine"}}); err != nil {
			return err
		}
		for _, call := range c.Engine {
			if call.Began == 0 {
				continue // queued
			}
			ev := event{Name: call.Op, Phase: "X", Pid: d.Chorus.Rank, Tid: tid, Time: micros(call.Began),
				Args: map[string]any{"count": call.Count, "cycles": call.Cycles, "status": call.Status}}
			end := call.Began + call.Nanos
			if call.Nanos == 0 {
				end = max(end, d.Chorus.Time)
			}
			if ev.Dur = lasted(call.Began, end); call.Waits != "" {
				ev.Args["waits"] = engineWaits(&call)
			}
			if err := emit(ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// nearest is how far away an operation is looked for that is like another.
const nearest = 64

// estimate returns when an operation probably ended whose end wasn't timed: as long after its beginning as with the
// nearest one like it, but not after the next of its communicator had begun.
func estimate(all []Entry, i int) int64 {
	e := &all[i]
	from := began(e)
	took, found, next := int64(0), false, int64(math.MaxInt64)
	for n := 1; n < min(len(all), nearest) && (!found || next == math.MaxInt64); n++ {
		for _, j := range [...]int{i - n, i + n} {
			if j < 0 || j >= len(all) || all[j].Chorus.Comm != e.Chorus.Comm {
				continue
			}
			o := &all[j]
			if !found && o.Completed != nil && signature(o) == signature(e) {
				took, found = max(0, *o.Completed-began(o)), true
			}
			if j > i && next == math.MaxInt64 && !o.Chorus.Async {
				next = max(from, began(o))
			}
		}
	}
	if !found && next == math.MaxInt64 {
		return from
	}
	if !found {
		return next
	}
	return min(from+took, next)
}

// began returns when an operation was under way, or else called.
func began(e *Entry) int64 {
	if e.Started != nil {
		return *e.Started
	}
	return e.Created
}

// lasted returns how long it is from one time to another, in microseconds: not negative, though the times of a dump may
// be of two clocks.
func lasted(from, to int64) *float64 {
	d := float64(max(0, to-from)) / 1e3
	return &d
}
