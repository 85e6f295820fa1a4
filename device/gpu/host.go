package gpu

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/traces"
	"github.com/chorus-comms/chorus/internal/dl"
)

// function is a function of the host that is enqueued, or that a graph has captured.
type function struct {
	name string
	f    func() error
	s    *stream
	hold bool // the stream waits for a word, so that the call back ends at once
	word word
	done uint32 // what the word is when the function has run

	outcome  *outcome.Result // of the only run
	captured bool
	uses     atomic.Int32 // graphs and instantiated ones that have it
	mu       sync.Mutex
	runs     []run // of a captured one: those that are enqueued, in their order
	traced   traces.Work
	last     *last // of a captured one: the launch that has enqueued the last of them; guarded by Driver.launching
}

// run is the run of a graph in which a function runs.
type run struct {
	outcome *outcome.Result
	s       *stream
}

// functions are those that the library may call, by what it's given.
var functions = struct {
	sync.Mutex
	last  uintptr
	all   map[uintptr]*function
	entry dl.Func // what the library calls; one for the process
}{all: map[uintptr]*function{}}

func (f *function) add() (entry dl.Func, number uintptr) {
	functions.Lock()
	defer functions.Unlock()
	if functions.entry == 0 {
		functions.entry = dl.Callback(called)
	}
	functions.last++
	functions.all[functions.last] = f
	return functions.entry, functions.last
}

func forgetFunction(number uintptr) {
	functions.Lock()
	defer functions.Unlock()
	delete(functions.all, number)
}

// called is what the library calls, on a thread of its own, on which its functions may not be called.
func called(number uintptr) {
	functions.Lock()
	f := functions.all[number]
	if f != nil && !f.captured {
		delete(functions.all, number)
	}
	functions.Unlock()
	if f == nil {
		return // of a graph that is gone
	}
	if !f.hold {
		f.run()
		return
	}
	if f.captured {
		f.word.set(0)
	}
	go f.run()
}

// run runs the function, unless something that it comes after has failed, and lets the stream go on.
func (f *function) run() {
	mine, s, counted := f.outcome, f.s, !f.captured
	if f.captured {
		f.mu.Lock()
		if len(f.runs) > 0 {
			mine, s = f.runs[0].outcome, f.runs[0].s
			f.runs, counted = f.runs[1:], true
		} else {
			mine = (*outcome.Result)(nil).After(1) // a run that other code has launched
		}
		f.mu.Unlock()
	}
	s.at.Store(f)
	failed, _ := mine.Failed()
	if failed == nil {
		begin := time.Now()
		if err := base.Call(f.f); err != nil {
			failed = s.failure(f.name, err)
		}
		f.traced.Ran(begin, failed != nil)
	}
	s.at.CompareAndSwap(f, nil)
	if counted {
		s.expect(-1)
	}
	mine.Ran(failed)
	if f.hold {
		f.word.set(f.done)
	}
}

// HostFunc is that of [base.Front]. The function runs on a goroutine, and may call the driver.
func (s *stream) HostFunc(op, name string, f func() error) error {
	d := s.b.d
	if err := s.permits(op); err != nil {
		return err
	}
	if s.capture == nil && s.recording() {
		return driver.Errorf(driver.ErrUnsupported, s.b.Name, op,
			"%s: stream %#x is captured by another library, which would not say when the function isn't needed any more", name,
			uintptr(s.h))
	}
	if s.capture == nil && s.broken() != nil {
		return nil // left out
	}
	var err error
	x := &function{name: name, f: f, s: s, hold: s.b.waits, captured: s.capture != nil}
	if x.captured {
		x.hold = s.b.waitsInGraphs
	}
	if x.hold {
		if x.word, x.done, err = d.wordFor(s, x.captured); err != nil {
			return err
		}
	}
	if !x.captured {
		x.outcome = s.outcome.After(1)
	}
	if tr := d.trace.Load(); tr != nil && !x.captured {
		x.traced = s.calls(tr, op, driver.Activity{Kind: driver.ActivityHost, Name: name}, time.Now())
	}
	entry, number := x.add()
	if !x.captured {
		s.expect(1) // it may have run when the call returns
	}
	err = s.result(op, "LaunchHostFunc", func() abi.Result {
		return s.b.HostFunc(s.h, uintptr(entry), number)
	})
	if err != nil {
		forgetFunction(number)
		if !x.captured {
			s.expect(-1)
		}
		if x.captured && x.hold {
			s.b.keepWord(x.word)
		}
		return err
	}
	if x.captured {
		x.uses.Store(1)
		s.capture.mu.Lock()
		s.capture.functions = append(s.capture.functions, captured{number, x})
		s.capture.mu.Unlock()
	} else {
		s.outcome = x.outcome
	}
	if x.hold {
		how := uint32(abi.WaitValueGreater)
		if x.captured {
			how = abi.WaitValueEqual
		}
		return s.result(op, "StreamWaitValue32", func() abi.Result {
			return s.b.WaitValue(s.h, x.word.at, x.done, how, abi.AllBits)
		})
	}
	return nil
}

// word is 32 bits of pinned memory that a stream can wait for.
type word struct{ at uintptr }

func (w word) set(v uint32) {
	atomic.StoreUint32((*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&w.at))), v)
}

// wordFor is the word that a function sets, and to what: the stream's, with the number of the function, or one of its
// own, set to 1, for a captured function. The stream is locked.
func (d *Driver) wordFor(s *stream, own bool) (word, uint32, error) {
	if own {
		w, err := s.b.takeWord()
		return w, 1, err
	}
	if s.word.at == 0 {
		w, err := s.b.takeWord()
		if err != nil {
			return w, 0, err
		}
		w.set(0)
		s.word, s.count = w, 0
	}
	s.count++
	return s.word, s.count, nil
}

// wordBytes is the distance of words, so that none shares a line with another.
const wordBytes, wordsAtOnce = 64, 64

// takeWord returns an unused word.
func (b *gpu) takeWord() (word, error) {
	b.pool.Lock()
	defer b.pool.Unlock()
	if len(b.words) == 0 {
		const op = "host function"
		p := new(uintptr)
		if b.ExtMalloc != nil { // the only memory for which HIP says that streams wait for it; 8 bytes at a time
			err := b.call(op, "ExtMallocWithFlags", func() abi.Result { return b.ExtMalloc(p, 8, abi.SignalMemory) })
			return word{*p}, err
		}
		const flags = abi.HostPortable | abi.HostMapped
		err := b.call(op, "MemHostAlloc", func() abi.Result {
			return b.MemHostAlloc(p, wordBytes*wordsAtOnce, flags)
		})
		if err != nil {
			return word{}, err
		}
		for i := range uintptr(wordsAtOnce) {
			b.words = append(b.words, word{*p + i*wordBytes})
		}
	}
	w := b.words[len(b.words)-1]
	b.words = b.words[:len(b.words)-1]
	return w, nil
}

func (b *gpu) keepWord(w word) {
	if w.at != 0 {
		b.pool.Lock()
		defer b.pool.Unlock()
		b.words = append(b.words, w)
	}
}

// dropWord keeps a word when no stream waits for it any more.
func (d *Driver) dropWord(b *gpu, w word) {
	if w.at != 0 {
		d.deferred.Add(b, []*gpu{b}, 0, func() { b.keepWord(w) })
	}
}

// probe finds out whether streams can wait for words.
func (b *gpu) probe() bool {
	if !b.caps.Has("waits for values") || b.family.Name == "hip" && !b.caps.Has("signal memory") {
		return false
	}
	w, err := b.takeWord()
	if err != nil {
		return false
	}
	w.set(1)
	s := new(abi.Stream)
	if b.relaxed(func() abi.Result { return b.StreamCreate(s, abi.StreamNonBlocking, 0) }) != abi.Success {
		b.keepWord(w)
		return false
	}
	defer b.relaxed(func() abi.Result { return b.StreamDestroy(*s) })
	b.waitsInGraphs = b.capturesWait(*s, w)
	r := b.relaxed(func() abi.Result { return b.WaitValue(*s, w.at, 1, abi.WaitValueGreater, abi.AllBits) })
	for begin := time.Now(); r == abi.Success && time.Since(begin) < time.Second; {
		if b.query(func() abi.Result { return b.StreamQuery(*s) }) == abi.Success {
			b.keepWord(w) // not before: a stream that waits sees what the next one sets
			return true
		}
		time.Sleep(50 * time.Microsecond)
	}
	b.waitsInGraphs = false
	return false
}

// capturesWait finds out whether a wait for a word, which has its value already, becomes a node of a graph. In releases
// of HIP that don't capture it the stream itself waits, and the graph doesn't.
func (b *gpu) capturesWait(s abi.Stream, w word) bool {
	if !b.caps.Has("graphs") || b.do(func() abi.Result { return b.BeginCapture(s, abi.CaptureModeRelaxed) }) != abi.Success {
		return false
	}
	waits := b.do(func() abi.Result { return b.WaitValue(s, w.at, 1, abi.WaitValueEqual, abi.AllBits) })
	g, nodes := new(abi.Graph), new(uint64)
	if b.do(func() abi.Result { return b.EndCapture(s, g) }) != abi.Success {
		return false
	}
	r := b.do(func() abi.Result { return b.GraphNodes(*g, nil, nodes) })
	_ = b.relaxed(func() abi.Result { return b.Library.GraphDestroy(*g) })
	return waits == abi.Success && r == abi.Success && *nodes == 1
}
