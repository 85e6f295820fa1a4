package gpu

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/plans"
)

// gpu is one GPU.
type gpu struct {
	*Library
	base.Device
	d    *Driver
	id   abi.Device
	base anchor // of the times of a trace

	// Set at the first use, with which the process gets a context on the GPU.
	opening sync.Mutex
	opened  atomic.Bool
	context abi.Context // CUDA's primary one, which others in the process share
	waits   bool        // a stream can wait for a word
	urgent  int32       // the library's priority of the most urgent streams

	waitsInGraphs bool // such a wait can be captured

	functions atomic.Int32 // of the host, enqueued on all streams, that have not run

	mu      sync.Mutex
	streams map[*stream]bool
	going   []*ticket // of streams that were destroyed with work

	asked []atomic.Bool // whether access to each GPU's memory was asked for

	adopting sync.Mutex
	adopted  map[abi.Stream]bool // the streams of others

	pool   sync.Mutex
	events []abi.Event // without timing, to be used again
	words  []word      // likewise

	products products
	fused    *plans.Cache[fusedKey, fusedPlan] // of fused products
	plans    *plans.Cache[fftKey, fftPlan]     // of transforms
}

// peerRef names the GPU to functions about peers.
func (b *gpu) peerRef() abi.PeerRef {
	if b.context != 0 {
		return abi.PeerRef(b.context)
	}
	return abi.PeerRef(b.id)
}

// do calls the library on a thread for which the GPU is the current device meanwhile.
func (b *gpu) do(f func() abi.Result) abi.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if b.bound.on(b) != nil {
		return f()
	}
	if b.Push != nil {
		if r := b.Push(b.context); r != abi.Success {
			return r
		}
		r := f()
		if p := b.Pop(new(abi.Context)); r == abi.Success {
			r = p
		}
		return r
	}
	before := new(abi.Device)
	if r := b.GetDevice(before); r != abi.Success {
		return r
	}
	if *before != b.id {
		if r := b.SetDevice(b.id); r != abi.Success {
			return r
		}
		defer b.SetDevice(*before)
	}
	return f()
}

// relaxed is do for calls that end the captures of others if they come from a thread in another mode: queries of events
// and streams, and whatever allocates or frees. PyTorch, for example, captures in the mode that forbids them to every
// thread of the process.
func (b *gpu) relaxed(f func() abi.Result) abi.Result {
	if b.CaptureMode == nil {
		return b.do(f)
	}
	return b.do(func() abi.Result {
		mode := int32(abi.CaptureModeRelaxed)
		if r := b.CaptureMode(&mode); r != abi.Success {
			return r
		}
		r := f()
		if x := b.CaptureMode(&mode); r == abi.Success {
			r = x
		}
		return r
	})
}

// call is relaxed, with an error of the operation op if the library's function, which call names, fails.
func (b *gpu) call(op, call string, f func() abi.Result) error {
	return b.result(op, call, b.relaxed(f))
}

// query is relaxed for a query of an event or a stream. HIP's end captures even of threads in mode relaxed, so that
// there is no answer but "not ready" while a stream of others is known to be captured.
func (b *gpu) query(f func() abi.Result) abi.Result {
	if b.family.Name == "hip" && b.captured() {
		return abi.NotReady
	}
	return b.relaxed(f)
}

// captured reports whether an adopted stream is being captured.
func (b *gpu) captured() bool {
	b.adopting.Lock()
	defer b.adopting.Unlock()
	for h := range b.adopted {
		if b.status(h) != abi.CaptureNone {
			return true
		}
	}
	return false
}

// result is the error that a result is. An error of the GPU itself is remembered: nothing works any more.
func (b *gpu) result(op, call string, r abi.Result) error {
	if r == abi.Success {
		return nil
	}
	err := b.failed(call, r)
	if r.Sticky() {
		return b.Lose(call, err)
	}
	return driver.Errorf(kindOf(r), b.Name, op, "%w", err)
}

// event takes one without timing, and retire gives it back.
func (b *gpu) event(op string) (abi.Event, error) {
	b.pool.Lock()
	if n := len(b.events); n > 0 {
		e := b.events[n-1]
		b.events = b.events[:n-1]
		b.pool.Unlock()
		return e, nil
	}
	b.pool.Unlock()
	made := new([eventsAtOnce]abi.Event)
	n := 0
	err := b.call(op, "EventCreate", func() (r abi.Result) {
		for ; n < len(made); n++ {
			if r = b.EventCreate(&made[n], abi.EventDisableTiming); r != abi.Success {
				break
			}
		}
		return r
	})
	if n == 0 {
		return 0, err
	}
	for _, e := range made[1:n] { // as many as there are: an error is the next caller's
		b.retire(e)
	}
	return made[0], nil
}

// eventsAtOnce is how many the library is asked for at a time, so that few operations ask.
const eventsAtOnce = 16

func (b *gpu) retire(e abi.Event) {
	b.pool.Lock()
	defer b.pool.Unlock()
	b.events = append(b.events, e)
}

// happened asks whether an event's work is done.
func (b *gpu) happened(op string, e abi.Event) (bool, error) {
	switch r := b.query(func() abi.Result { return b.EventQuery(e) }); r {
	case abi.Success:
		return true, nil
	case abi.NotReady:
		return false, nil
	default:
		return false, b.result(op, "EventQuery", r)
	}
}

// ticket is a point in the order of a stream that something waits for.
type ticket struct {
	b    *gpu
	e    abi.Event
	mu   sync.Mutex
	done bool
}

// ticket records one on a stream of the library.
func (b *gpu) ticket(op string, s abi.Stream) (*ticket, error) {
	e, err := b.event(op)
	if err != nil {
		return nil, err
	}
	if err := b.result(op, "EventRecord", b.do(func() abi.Result { return b.EventRecord(e, s) })); err != nil {
		b.retire(e)
		return nil, err
	}
	return &ticket{b: b, e: e}, nil
}

// over reports whether the work is done. On a GPU that has failed it is.
func (t *ticket) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		if r := t.b.query(func() abi.Result { return t.b.EventQuery(t.e) }); r == abi.NotReady {
			return false
		} else if r == abi.Success {
			t.b.retire(t.e)
		}
		t.done = true
	}
	return true
}

// Held is that of [base.Frees]. The library frees when the GPU has nothing to do, and streams wait for functions.
func (b *gpu) Held() bool { return b.functions.Load() > 0 }

// pending returns tickets for all that the GPU's streams have to do at the moment.
func (b *gpu) Pending() (all []*ticket) {
	b.mu.Lock()
	streams := make([]*stream, 0, len(b.streams))
	for s := range b.streams {
		streams = append(streams, s)
	}
	b.going = outcome.Keep(b.going, func(t *ticket) bool { return !t.Over() })
	all = append(all, b.going...)
	b.mu.Unlock()
	for _, s := range streams {
		s.Lock()
		if !s.Gone && !s.recording() { // else it can't be asked; what it captures is looked at again at each replay
			if r := b.query(func() abi.Result { return b.StreamQuery(s.h) }); r == abi.NotReady {
				if t, err := b.ticket("release", s.h); err == nil {
					all = append(all, t)
				}
			}
		}
		s.Unlock()
	}
	return all
}
