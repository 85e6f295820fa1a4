package comm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
)

// replaysHint has torchcomms' name: how often the runs of graphs are looked at, in milliseconds.
const replaysHint = "graph_timeout_check_interval_ms"

// takeReplays takes the hint for the deadlines of graphs' runs out of the hints of a communicator. 0: there are none.
func takeReplays(hints map[string]string) (pause time.Duration, given bool, err error) {
	text, given := hints[replaysHint]
	if !given {
		return 0, false, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, false, fmt.Errorf("%w: hint %s=%q is no number of milliseconds", ErrInvalidArgument, replaysHint, text)
	}
	delete(hints, replaysHint)
	return time.Duration(ms) * time.Millisecond, true, nil
}

// replays are the operations that graphs have captured. No call marks the begin or end of their runs. So each has a
// word of pinned memory, which the graph sets before the operation and clears after it. A goroutine polls the words as
// long as the communicator lives.
type replays struct {
	pause time.Duration // between looks; 0: there are none
	marks *marks

	mu      sync.Mutex
	list    []*replay
	running *replay // one that was under way when the communicator broke, or began later
}

// replay is a captured operation. Its run is taken for one as long as every look finds it under way.
type replay struct {
	call  *call
	own   inherited
	word  *atomic.Uint32 // what the graph has set
	since time.Time      // when it was first found under way; zero: it wasn't at the last look
}

// inherited are the settings that an operation has from its communicator. A captured one has those of the time of the
// replay, so that a graph needs no new capture when they change.
type inherited struct{ timeout, hints bool }

func (c *Comm) inheritedBy(o *call) inherited {
	i := inherited{timeout: o.Timeout == time.Duration(c.timeout.Load())}
	if h := c.hints.Load(); h == nil {
		i.hints = o.Hints == nil
	} else {
		i.hints = len(o.Hints) == len(*h)
		for k, v := range *h {
			i.hints = i.hints && o.Hints[k] == v
		}
	}
	return i
}

// refreshSettings gives a captured operation the communicator's current settings.
func (c *Comm) refreshSettings(o *call, i inherited) {
	if i.timeout {
		o.Timeout = time.Duration(c.timeout.Load())
	}
	if i.hints {
		o.Hints = nil
		if h := c.hints.Load(); h != nil {
			o.Hints = *h
		}
	}
}

// marks are what graphs of a device copy into words: ones, and zeros behind them. Graphs may outlive communicators, so
// that neither they nor the words are ever freed.
type marks struct {
	ones, zeros device.Ptr

	mu   sync.Mutex
	page *device.Pinned
	used int
}

const (
	wordBytes = 4
	pageBytes = 4096
)

var allMarks struct {
	sync.Mutex
	of map[*device.Device]*marks
}

// marksOf prepares a device's, which is done before anything is captured.
func marksOf(d *device.Device, s *device.Stream) (*marks, error) {
	allMarks.Lock()
	defer allMarks.Unlock()
	if m := allMarks.of[d]; m != nil {
		return m, nil
	}
	p, err := d.Malloc(2 * wordBytes)
	if err != nil {
		return nil, err
	}
	m := &marks{ones: p, zeros: p + wordBytes}
	if err = s.Fill(m.ones, 1, wordBytes); err == nil {
		err = s.Fill(m.zeros, 0, wordBytes)
	}
	if err == nil {
		err = s.Synchronize(context.Background())
	}
	if err != nil {
		return nil, err
	}
	if allMarks.of == nil {
		allMarks.of = map[*device.Device]*marks{}
	}
	allMarks.of[d] = m
	return m, nil
}

// word gives a word of pinned memory, which is zero.
func (m *marks) word(rt *device.Runtime) (device.Ptr, *atomic.Uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.page == nil || m.used == pageBytes {
		page, err := rt.Pin(pageBytes)
		if err != nil {
			return 0, nil, err
		}
		clear(page.Bytes())
		m.page, m.used = page, 0
	}
	at := m.used
	m.used += wordBytes
	return m.page.Ptr() + device.Ptr(at), (*atomic.Uint32)(unsafe.Pointer(&m.page.Bytes()[at])), nil
}

// begin prepares operations that are about to be captured for looks at their runs, and returns what is to be called
// behind them.
func (r *replays) begin(x *libraryExecutor, s *device.Stream, calls []*call) (end func() error, err error) {
	if r.pause == 0 {
		return func() error { return nil }, nil
	}
	at, word, err := r.marks.word(s.Device().Runtime())
	if err == nil {
		err = s.Copy(at, r.marks.ones, wordBytes)
	}
	if err != nil {
		return nil, err
	}
	for _, o := range calls {
		o.Running = func() bool { return word.Load() != 0 }
	}
	return func() error {
		if err := s.Copy(at, r.marks.zeros, wordBytes); err != nil {
			return err
		}
		one := *calls[0] // without the tensors, which needn't live as long as this
		one.In, one.Out, one.Ins, one.Outs, one.Reduce.FactorTensor = nil, nil, nil, nil, nil
		one.originals, one.work, one.round, one.next = nil, nil, nil, nil
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.list = append(r.list, &replay{call: &one, own: x.c.inheritedBy(&one), word: word}); len(r.list) == 1 {
			go r.watch(x)
		}
		return nil
	}, nil
}

// watch looks at what is under way until the communicator is broken or ends.
func (r *replays) watch(x *libraryExecutor) {
	c := x.c
	tick := time.NewTicker(r.pause)
	defer tick.Stop()
	for {
		select {
		case <-c.gate.shut:
			return
		case <-c.b.Broken():
			r.failed(x)
			return
		case now := <-tick.C:
			r.mu.Lock()
			list := slices.Clone(r.list)
			r.mu.Unlock()
			for _, one := range list {
				r.look(x, one, now)
			}
		}
	}
}

func (r *replays) look(lib *libraryExecutor, x *replay, now time.Time) {
	c := lib.c
	c.refreshSettings(x.call, x.own)
	switch {
	case x.word.Load() == 0:
		x.since = time.Time{}
	case x.since.IsZero():
		x.since = now
	case now.Sub(x.since) > x.call.Timeout:
		at := c.at(x.call.Kind.String())
		at.Seq = x.call.Seq
		lib.enq.Overdue(at, &x.call.Op, now.Sub(x.since))
	}
}

// failed takes note of runs that the communicator's failure has ended.
func (r *replays) failed(lib *libraryExecutor) {
	c := lib.c
	cause := c.b.Cause()
	if _, healthy := cause.(*backend.FinalizedError); healthy {
		return
	}
	lib.noteDone()
	if x := r.noteRunning(); x != nil {
		c.failed(cause)
		lib.fatalBehind(cause, x.call.Site)
	}
}

// noteRunning returns a run that is under way, or was at an earlier call; nil if there is none.
func (r *replays) noteRunning() *replay {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.list, func(x *replay) bool { return x.word.Load() != 0 }); i >= 0 && r.running == nil {
		r.running = r.list[i]
	}
	return r.running
}
