package fabric

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kern"
)

// Abort is the state of a communicator that every wait of it watches: raised
// once, it stays raised and keeps its first cause.
type Abort struct {
	raised atomic.Uint32
	mu     sync.Mutex
	cause  error
	done   chan struct{}
}

// NewAbort returns a state that isn't raised.
func NewAbort() *Abort { return &Abort{done: make(chan struct{})} }

// Raise ends all waits with the cause. It reports whether it was the first.
func (a *Abort) Raise(cause error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil {
		return false
	}
	a.cause = cause
	a.raised.Store(1)
	close(a.done)
	return true
}

// Raised reports whether Raise was called. It's cheap enough for a spin loop.
func (a *Abort) Raised() bool { return a.raised.Load() != 0 }

// Cause returns the first cause, or nil.
func (a *Abort) Cause() error {
	if !a.Raised() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

// Done is closed when the state is raised.
func (a *Abort) Done() <-chan struct{} { return a.done }

// ErrTimeout is what a wait returns when its time is over.
var ErrTimeout = errors.New("fabric: timed out")

// Waiter is how one goroutine waits: until when, for whose sake, and how it is
// woken. One Waiter serves one goroutine at a time and is reused from wait to
// wait. A fast wait never looks at the clock.
type Waiter struct {
	Abort   *Abort          // never nil
	Ctx     context.Context // nil means no cancellation
	Timeout time.Duration   // counted from the first slow check after Begin; 0 means none
	Policy  Policy
	// Slow is called by Check when the operation has been waited for SlowAfter, and again each time that has doubled.
	// Prod has it called sooner. It runs on the waiting goroutine, which may hold a fabric's locks, and must not wait for
	// anything. nil: it isn't called.
	Slow func()

	start    time.Time
	deadline time.Time
	slow     time.Duration // when Slow is called next, counted from start
	prodded  atomic.Bool
	parked   atomic.Uint32
	wake     chan struct{}
	timer    *time.Timer
	ctxDone  <-chan struct{} // the context's, as the last check has found it
}

// NewWaiter returns a Waiter that watches a.
func NewWaiter(a *Abort) *Waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Waiter{Abort: a, Policy: SpinPolicy, wake: make(chan struct{}, 1), timer: t}
}

// A Poller is a context that has to be polled on the waiting goroutine itself, as for a language runtime that
// handles its signals on one thread. A wait calls Poll at every slow check, and while it's blocked every
// PollInterval. An error ends the wait; the context must have ended by then. It's found through contexts derived
// from it, since its Value for AsPoller is itself.
type Poller interface {
	context.Context
	Poll() error
}

type asPoller struct{}

// AsPoller is the key under which a Poller's Value is the Poller.
var AsPoller any = asPoller{}

// PollerOf returns the Poller that a context is, or is derived from; nil if there is none.
func PollerOf(ctx context.Context) Poller {
	if ctx == nil {
		return nil
	}
	if p, ok := ctx.(Poller); ok {
		return p
	}
	p, _ := ctx.Value(AsPoller).(Poller)
	return p
}

// SlowAfter is when a Waiter's Slow is called first: long after what an operation takes whose ranks come together, and
// soon enough to find within a second what a question to another rank can find.
const SlowAfter = 500 * time.Millisecond

// PollInterval is how long a blocked wait leaves a Poller alone.
const PollInterval = 20 * time.Millisecond

// Begin starts a new operation: its time counts from the first moment at which
// a wait turns out to be slow.
func (w *Waiter) Begin(ctx context.Context, timeout time.Duration) {
	w.Ctx, w.Timeout = ctx, timeout
	if !w.start.IsZero() {
		w.start = time.Time{}
	}
}

// poller returns the context, if it wants to be asked. Few operations wait for so long that it matters.
func (w *Waiter) poller() Poller { return PollerOf(w.Ctx) }

// Elapsed returns how long the operation has been waited for, as far as the waiter looked.
func (w *Waiter) Elapsed() time.Duration {
	if w.start.IsZero() {
		return 0
	}
	return time.Since(w.start)
}

// Check is the slow check of a wait loop: it returns why to give up, or nil.
func (w *Waiter) Check() error {
	if w.Abort.Raised() {
		return w.Abort.Cause()
	}
	if w.Ctx != nil {
		if err := w.ended(); err != nil {
			return err
		}
	}
	if !w.start.IsZero() && w.Timeout <= 0 && w.Slow == nil {
		return nil
	}
	now := time.Now()
	switch {
	case w.start.IsZero():
		w.start, w.deadline, w.slow = now, now.Add(w.Timeout), SlowAfter
	case w.Timeout > 0 && now.After(w.deadline):
		return ErrTimeout
	case w.Slow != nil && w.prodded.Load():
		w.prodded.Store(false)
		w.Slow()
	case w.Slow != nil && now.Sub(w.start) >= w.slow:
		w.slow *= 2
		w.Slow()
	}
	return nil
}

// PanicError is a wait's error if a method of its context has panicked. The waiting goroutine may hold a fabric's
// locks, which are released as after any other error.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, as runtime/debug has it
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("fabric: the wait's context panicked: %v", e.Value)
}

// ended asks the context whether the wait is to end, and why.
func (w *Waiter) ended() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	if p := w.poller(); p != nil {
		if err := p.Poll(); err != nil {
			return err
		}
	}
	w.ctxDone = w.Ctx.Done()
	select {
	case <-w.ctxDone:
		return context.Cause(w.Ctx)
	default:
		return nil
	}
}

// Prod has the waiting goroutine call Slow at its next check, which a blocked wait comes to at once. Without a wait the
// next one does so. Any goroutine may call it.
func (w *Waiter) Prod() {
	w.prodded.Store(true)
	w.Wake()
}

// Wake ends the current or next Park.
func (w *Waiter) Wake() {
	if w.parked.Load() != 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Park waits until done() holds, first spinning as the policy says, then blocked.
// It suits fabrics where another core completes messages; done must become true
// before Wake is called.
func (w *Waiter) Park(done func() bool) error {
	for range w.Policy.Spins {
		if done() {
			return nil
		}
		kern.Pause(1)
	}
	return w.Block(done)
}

// Block is Park without the spinning: for fabrics whose own goroutines complete
// messages, and need this core to do so.
func (w *Waiter) Block(done func() bool) error {
	w.parked.Store(1)
	defer w.parked.Store(0)
	for {
		if done() {
			return nil
		}
		if err := w.Check(); err != nil {
			return err
		}
		w.sleep(nil)
	}
}

// Await waits until done is closed.
func (w *Waiter) Await(done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if err := w.Check(); err != nil {
			return err
		}
		w.sleep(done)
	}
}

// sleep blocks until Wake is called, done is closed, or there may be a reason to give up. A goroutine that waits for
// Wake has set parked, and checked its condition once more.
func (w *Waiter) sleep(done <-chan struct{}) {
	var expired <-chan time.Time
	// Before the first check nothing is known of the context.
	if w.Timeout > 0 || w.poller() != nil || w.Slow != nil || w.start.IsZero() {
		w.timer.Reset(w.nextCheck())
		expired = w.timer.C
	}
	select {
	case <-w.wake:
	case <-done:
	case <-w.Abort.Done():
	case <-w.ctxDone:
	case <-expired:
	}
	w.timer.Stop()
}

// nextCheck is how long a blocked wait may sleep before the next check. Before the first check, which sets the
// deadline, it may not sleep at all.
func (w *Waiter) nextCheck() time.Duration {
	d := time.Duration(math.MaxInt64)
	if w.start.IsZero() {
		return time.Microsecond
	}
	if w.Timeout > 0 {
		d = max(0, time.Until(w.deadline)) + time.Microsecond
	}
	if w.Slow != nil {
		d = min(d, max(0, w.slow-time.Since(w.start)))
	}
	if w.poller() != nil {
		d = min(d, PollInterval)
	}
	return d
}

// Policy says how a wait on shared memory spends its time: first Spins looks
// with a pause between, then Yields looks that give the core away, then sleep.
type Policy struct {
	Spins  int
	Yields int
	// InProcess: the peers are goroutines, so yielding means runtime.Gosched.
	InProcess bool
}

// Yield gives the core away, as the i-th look of a wait.
func (p Policy) Yield(i int) {
	if !p.InProcess {
		sys.Yield()
	}
	if p.InProcess || i%64 == 0 { // let this process's own goroutines run too
		runtime.Gosched()
	}
}

// The policies follow measurements of hops between processes. With a core per rank a short spin is
// the fastest by far. With more ranks than cores spinning costs milliseconds per hop, and giving
// the core away at once costs two microseconds. A sleeper takes 50 to 100 us to wake up in a
// virtual machine: ranks that give up sooner than that may go on to find each other asleep, again
// and again.
var (
	SpinPolicy    = Policy{Spins: 2000, Yields: 2000}
	CrowdedPolicy = Policy{Spins: 0, Yields: 100}
	BlockPolicy   = Policy{}
)

// PolicyFor chooses by the number of ranks on this host and of the cores that they may use
// together.
func PolicyFor(localRanks, cores int) Policy {
	if localRanks <= cores {
		return SpinPolicy
	}
	return CrowdedPolicy
}
