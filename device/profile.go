package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// Profile collects what devices did, and what the host says it did, over a time.
//
//	p, err := device.StartProfile(rt)
//	end := p.Range("step 1")
//	...
//	end()
//	t, err := p.Stop()
//	err = t.WriteChrome(file) // for chrome://tracing or ui.perfetto.dev
type Profile struct {
	rts    []*Runtime
	begin  time.Time
	mu     sync.Mutex
	ranges []Range
}

// Range is something that the host did.
type Range struct {
	Name       string
	Start, End time.Time
	Thread     int // of the host, if ranges of several may overlap; else 0
}

// Trace is the result of a profile.
type Trace struct {
	Begin      time.Time
	Ranges     []Range
	Activities map[string][]Activity // by type of device
}

// StartProfile begins to collect on all devices of the given types. There can be one profile of a type at a time.
func StartProfile(rts ...*Runtime) (*Profile, error) {
	p := &Profile{begin: time.Now()}
	for _, rt := range rts {
		t, err := optional[driver.Tracer](rt, "profile")
		if err == nil {
			err = t.TraceStart()
		}
		if err != nil {
			_, stopErr := p.Stop()
			return nil, errors.Join(err, stopErr)
		}
		p.rts = append(p.rts, rt)
	}
	return p, nil
}

// Range notes that the host begins something, until the returned function is called.
func (p *Profile) Range(name string) (end func()) {
	start := time.Now()
	return func() { p.Note(Range{Name: name, Start: start, End: time.Now()}) }
}

// Note adds a range that is over.
func (p *Profile) Note(r Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranges = append(p.ranges, r)
}

// Stop ends the collection. Work that is still under way is not in it: synchronize before.
func (p *Profile) Stop() (*Trace, error) {
	t := &Trace{Begin: p.begin, Activities: map[string][]Activity{}}
	var errs []error
	for _, rt := range p.rts {
		list, err := rt.drv.(driver.Tracer).TraceStop()
		errs = append(errs, err)
		t.Activities[rt.Name()] = list
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Ranges = slices.Clone(p.ranges)
	return t, errors.Join(errs...)
}

// chromeEvent is an event of the Trace Event Format, which chrome://tracing and Perfetto read.
type chromeEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   uint64         `json:"tid"`
	Time  float64        `json:"ts"` // microseconds
	Dur   *float64       `json:"dur,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	ID    uint64         `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// hostPID is the process under which the host is shown; devices follow. Its threads from threadTIDs on are the host's.
const (
	hostPID    = 1
	threadTIDs = 1000
)

// WriteChrome writes the trace as JSON in Chrome's Trace Event Format. The host and each device are processes, and each
// stream is a thread of its device. Arrows lead from calls of the host to the work that they enqueued.
func (t *Trace) WriteChrome(w io.Writer) error {
	var events []chromeEvent
	us := func(at time.Time) float64 { return float64(at.Sub(t.Begin).Nanoseconds()) / 1e3 }
	meta := func(what, name string, pid int, tid uint64) {
		events = append(events, chromeEvent{Name: what, Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
	}
	span := func(e chromeEvent, start, end time.Time) {
		dur := us(end) - us(start)
		e.Phase, e.Time, e.Dur = "X", us(start), &dur
		events = append(events, e)
	}
	meta("process_name", "host", hostPID, 0)
	meta("thread_name", "ranges", hostPID, 0)
	threads := map[int]uint64{0: 0}
	for _, r := range t.Ranges {
		tid, known := threads[r.Thread]
		if !known {
			tid = threadTIDs + uint64(len(threads))
			threads[r.Thread] = tid
			meta("thread_name", fmt.Sprintf("ranges of thread %d", r.Thread), hostPID, tid)
		}
		span(chromeEvent{Name: r.Name, PID: hostPID, TID: tid, Cat: "user"}, r.Start, r.End)
	}
	types := make([]string, 0, len(t.Activities))
	for name := range t.Activities {
		types = append(types, name)
	}
	slices.Sort(types)
	pid := hostPID
	var flow uint64 // the ids of arrows are unique over all types
	for k, name := range types {
		calls := uint64(k + 1) // the thread of the host's calls
		meta("thread_name", "calls of "+name, hostPID, calls)
		pids, tids := map[int]int{}, map[StreamHandle]bool{}
		arrows := map[uint64]uint64{}
		for _, a := range t.Activities[name] {
			if a.Kind == ActivityRuntime {
				span(chromeEvent{Name: a.Name, PID: hostPID, TID: calls, Cat: a.Kind.String(), Args: argsOf(&a)}, a.Start, a.End)
				flow++
				arrows[a.Correlation] = flow
				events = append(events, chromeEvent{Name: "enqueue", Phase: "s", PID: hostPID, TID: calls, Time: us(a.Start),
					Cat: "enqueue", ID: flow})
			}
		}
		for _, a := range t.Activities[name] {
			if a.Kind == ActivityRuntime {
				continue
			}
			if pids[a.Device] == 0 {
				pid++
				pids[a.Device] = pid
				meta("process_name", fmt.Sprintf("%s:%d", name, a.Device), pid, 0)
			}
			if !tids[a.Stream] {
				tids[a.Stream] = true
				meta("thread_name", fmt.Sprintf("stream %#x", uintptr(a.Stream)), pids[a.Device], uint64(a.Stream))
			}
			span(chromeEvent{Name: a.Name, PID: pids[a.Device], TID: uint64(a.Stream), Cat: a.Kind.String(), Args: argsOf(&a)},
				a.Start, a.End)
			if id, ok := arrows[a.Correlation]; ok {
				delete(arrows, a.Correlation) // to the first piece of work, which for a graph is its first node
				events = append(events, chromeEvent{Name: "enqueue", Phase: "f", Bind: "e", PID: pids[a.Device],
					TID: uint64(a.Stream), Time: us(a.Start), Cat: "enqueue", ID: id})
			}
		}
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ns"})
}

func argsOf(a *Activity) map[string]any {
	m := map[string]any{"correlation": a.Correlation}
	if a.Bytes > 0 {
		m["bytes"] = a.Bytes
	}
	if a.External != 0 {
		m["external id"] = a.External
	}
	if a.Failed {
		m["failed"] = true
	}
	return m
}
