package ucx

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A watcher waits for the events of a worker, through the runtime's poller.
type watcher struct {
	file   *os.File // a duplicate of the worker's descriptor, which UCX closes itself; nil: there are no events
	raw    syscall.RawConn
	wakeup chan struct{} // ends a pause
}

func (x *watcher) open(fd int) error {
	x.wakeup = make(chan struct{}, 1)
	if fd < 0 {
		return nil
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return os.NewSyscallError("fcntl", err)
	}
	x.file = os.NewFile(uintptr(own), "ucx events")
	if x.raw, err = x.file.SyscallConn(); err != nil {
		x.file.Close()
	}
	return err
}

// wake ends a pause, and a wait for events, at once.
func (x *watcher) wake() {
	select {
	case x.wakeup <- struct{}{}:
	default:
	}
	if x.file != nil {
		x.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (x *watcher) close() {
	x.wake()
	if x.file != nil {
		x.file.Close()
	}
}

// fired reports whether there's an event.
func fired(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil && err != unix.EINTR
}

// The watcher leaves progress to goroutines that spin for a short pause first, and longer ones later, before it looks
// again. While UCX has something under way it sleeps for a busy pause at most: not every transport tells when it can go
// on.
const (
	shortPause = time.Millisecond
	longPause  = 8 * time.Millisecond
	busyPause  = time.Millisecond
	idlePause  = 10 * time.Millisecond // without events
)

// watch is the goroutine that makes progress when none waits.
func (f *Fabric) watch() {
	x := &f.watcher
	tick := time.NewTimer(shortPause)
	defer tick.Stop()
	var seen uint64
	for f.ctx.Err() == nil {
		for pause := shortPause; f.waitersPoll(&seen) && f.ctx.Err() == nil; pause = min(2*pause, longPause) {
			tick.Reset(pause)
			select {
			case <-x.wakeup:
				seen = f.spins.Load()
			case <-tick.C:
			}
		}
		for f.progress() {
			runtime.Gosched()
		}
		f.sleep(x, tick)
	}
}

// waitersPoll reports whether progress is best left to goroutines that wait: one does, or has since the last call with
// the same seen.
func (f *Fabric) waitersPoll(seen *uint64) bool {
	last := *seen
	*seen = f.spins.Load()
	return f.spinning.Load() > 0 || *seen != last
}

// sleep waits for an event, if there's none yet.
func (f *Fabric) sleep(x *watcher, tick *time.Timer) {
	pause := time.Duration(0)
	if x.file == nil {
		pause = idlePause
	} else {
		x.file.SetReadDeadline(time.Time{}) // before anything is looked at that wake is called for
	}
	f.mu.Lock()
	if len(f.sends) > 0 || len(f.receives) > 0 || len(f.ending) > 0 || f.unsure {
		f.unsure = true
		pause = busyPause
	}
	ready := x.file != nil && !f.w.arm()
	f.mu.Unlock()
	select {
	case <-x.wakeup:
		return
	default:
	}
	switch {
	case ready:
		runtime.Gosched()
	case x.file == nil:
		tick.Reset(pause)
		select {
		case <-x.wakeup:
		case <-tick.C:
		}
	default:
		if pause > 0 {
			x.file.SetReadDeadline(time.Now().Add(pause))
		}
		x.raw.Read(fired)
	}
}

// attend has the watcher look, since UCX has something under way that needs progress. The caller holds the lock.
func (f *Fabric) attend() {
	if f.spinning.Load() == 0 {
		f.watcher.wake()
	}
}

// beats is how many pings a peer gets in the time that it may be silent.
const beats = 3

// beat sends pings to every connected peer, and reports those lost from which nothing has come for the time of a
// heartbeat.
func (f *Fabric) beat() {
	t := time.NewTicker(f.o.heartbeat / beats)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-f.ctx.Done():
			return
		}
		now := f.ticks.Add(1)
		for _, p := range f.peers {
			if p == nil {
				continue
			}
			if err := p.beat(now); err != nil {
				f.turn.Lock()
				p.fail(err)
				f.turn.Unlock()
			}
		}
	}
}
