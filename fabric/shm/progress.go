package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kern"
)

// progress is the state of a rank's progress with messages. One poll looks at the rings of all peers, hands
// arrivals to the Matcher, completes messages that were acknowledged, and copies for receives that read their
// sender's memory. There's no thread for it: a goroutine that waits takes the lock and polls. If none waits,
// idleProgress does.
type progress struct {
	lock   atomic.Uint32 // 1 while a goroutine makes progress
	wanted atomic.Int32  // goroutines that need the lock now: runners make way
	runs   atomic.Uint64 // waits that have made progress
	down   bool          // no more; progress lock
	asleep atomic.Int32  // sleepers on this rank's own bell

	bellMu    sync.Mutex
	inboxGone bool // the inbox is gone

	parkedMu sync.Mutex
	parked   []*fabric.Waiter // waits that leave progress to another one
	nparked  atomic.Int32

	pulls pulls
}

const (
	// sleepTime bounds a sleep of a wait, so that aborts and deadlines are noticed.
	sleepTime = 5 * time.Millisecond
	// sharedSleep is the same for a wait that goroutines of another fabric may end.
	sharedSleep = 100 * time.Microsecond
	// quietTime is how long idleProgress leaves progress to goroutines that wait now and then,
	// before it polls itself.
	quietTime = 2 * time.Millisecond
)

func (f *Fabric) tryLock() bool { return f.lock.Load() == 0 && f.lock.CompareAndSwap(0, 1) }

func (f *Fabric) unlock() {
	f.lock.Store(0)
	if f.nparked.Load() != 0 {
		f.wakeParked()
	}
}

// acquire takes the lock, from a goroutine that makes progress if there's one.
func (f *Fabric) acquire() {
	f.wanted.Add(1)
	for i := 0; !f.tryLock(); i++ {
		f.kick()
		if i < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(20 * time.Microsecond)
		}
	}
	f.wanted.Add(-1)
}

// kick wakes this rank's goroutine that sleeps while it holds the progress lock, since there's
// something to do.
func (f *Fabric) kick() {
	if f.asleep.Load() == 0 {
		return
	}
	f.bellMu.Lock()
	if !f.inboxGone {
		f.page.ring()
	}
	f.bellMu.Unlock()
}

// poll does once all that can be done without waiting. The progress lock is held.
func (f *Fabric) poll() (progress bool) {
	for _, p := range f.near {
		if !p.broken {
			stamp, ok, err := p.in.peek()
			if ok {
				f.receive(p, stamp)
				progress = true
			} else if err != nil {
				p.broken = true
				p.failLink(err)
			}
		}
		if a := p.acks.Load(); a != p.acked {
			p.collect(a)
			progress = true
		}
		if p.behind.Load() && p.flush() {
			progress = true
		}
	}
	if f.pulls.busy() && f.pull() {
		progress = true
	}
	if progress && f.nparked.Load() != 0 {
		f.wakeParked()
	}
	return progress
}

// step is the i-th turn of a wait that found nothing, from 1 up. It reports true when it's time to sleep.
func (f *Fabric) step(i int) (sleep bool) {
	p := f.policy
	switch {
	case i < p.Spins:
		kern.Pause(1)
	case i-p.Spins < p.Yields:
		p.Yield(i)
	default:
		return true
	}
	return false
}

// Wait implements fabric.Fabric.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	for i := 1; !m.Done(); i++ {
		var err error
		switch {
		case f.wanted.Load() == 0 && f.tryLock():
			err = f.run(m, w)
			f.unlock()
			i = 0
		case f.step(i):
			err = f.park(m, w)
		case i%32 == 0:
			err = w.Check()
		}
		if err != nil && !m.Done() {
			return err
		}
	}
	return m.Err
}

// run polls until the message is done, the wait has reason to end, or another goroutine needs the
// progress lock, which is held.
func (f *Fabric) run(m *fabric.Msg, w *fabric.Waiter) error {
	f.runs.Store(f.runs.Load() + 1)
	for i, n := 1, 1; ; i, n = i+1, n+1 {
		if f.down {
			return fabric.ErrClosed
		}
		progress := f.poll()
		if m.Done() || f.wanted.Load() != 0 {
			return nil
		}
		slept := false
		if progress {
			i = 0
		} else if i == f.policy.Spins && m.Peer != fabric.AnySource && f.peers[m.Peer] != nil {
			sys.MigrateOffSharedCore(&f.page.coreHint, &f.peers[m.Peer].page.coreHint)
		} else if f.step(i) {
			f.sleep(m)
			slept = true
		}
		if slept || n%256 == 0 || i > f.policy.Spins && n%32 == 0 {
			if err := w.Check(); err != nil {
				return err
			}
		}
	}
}

// sleep waits for the bell, unless there's something to do already. The progress lock is held.
func (f *Fabric) sleep(m *fabric.Msg) {
	d := sleepTime
	if m.Peer == fabric.AnySource && len(f.locals) < f.size {
		d = sharedSleep
	}
	bell := f.armBell()
	if !f.poll() && !m.Done() && f.wanted.Load() == 0 {
		sys.FutexWait(word(&f.page.bell), bell, d)
	}
	f.disarmBell()
}

// armBell has peers and this rank's own goroutines ring the bell from now on. The poll that follows
// sees all that they did before.
func (f *Fabric) armBell() (bell uint32) {
	f.asleep.Add(1)
	f.page.sleepers.Add(1)
	return f.page.bell.Load()
}

func (f *Fabric) disarmBell() {
	f.page.sleepers.Add(^uint32(0))
	f.asleep.Add(-1)
}

// park waits until the message is done or no goroutine makes progress any more.
func (f *Fabric) park(m *fabric.Msg, w *fabric.Waiter) error {
	f.parkedMu.Lock()
	f.parked = append(f.parked, w)
	f.nparked.Store(int32(len(f.parked)))
	f.parkedMu.Unlock()
	err := w.Park(func() bool { return m.Done() || f.lock.Load() == 0 })
	f.parkedMu.Lock()
	for i, x := range f.parked {
		if x == w {
			f.parked = append(f.parked[:i], f.parked[i+1:]...)
			break
		}
	}
	f.nparked.Store(int32(len(f.parked)))
	f.parkedMu.Unlock()
	return err
}

func (f *Fabric) wakeParked() {
	f.parkedMu.Lock()
	for _, w := range f.parked {
		w.Wake()
	}
	f.parkedMu.Unlock()
}

// idleProgress makes progress when no goroutine waits, so that messages move on while their poster
// computes, and peers don't wait for this rank. While other goroutines make progress now and then,
// it only looks from time to time. Once they have stopped, it sleeps on the bell. It holds the lock
// only while it polls.
func (f *Fabric) idleProgress() {
	defer f.workers.Done()
	timer := time.NewTimer(quietTime)
	defer timer.Stop()
	var seen uint64
	for !f.Closed() {
		if runs := f.runs.Load(); runs != seen || f.lock.Load() != 0 {
			seen = runs
			timer.Reset(quietTime)
			select {
			case <-timer.C:
			case <-f.stop:
			}
			continue
		}
		bell := f.armBell()
		idle := f.wanted.Load() == 0 && !f.Closed() && f.tryLock()
		if idle {
			idle = !f.down && !f.poll()
			f.unlock()
		}
		if idle && f.wanted.Load() == 0 {
			sys.FutexWait(word(&f.page.bell), bell, time.Second)
		}
		f.disarmBell()
	}
}
