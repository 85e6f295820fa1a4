package tcp

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeper moves bytes over its connections when nobody waits for them who does it
// himself. It watches through an epoll set of its own, in which a connection that has
// fired stays mute until it's armed again: were it the runtime's, every segment that comes
// would wake a thread, also while a waiting goroutine reads the connection anyway.
//
// While goroutines drive, the keeper pauses, and looks now and then whether they still do.
type keeper struct {
	f    *Fabric
	fd   int
	file *os.File // of fd; the runtime watches it
	raw  syscall.RawConn
	call chan struct{} // ends a pause

	mu     sync.Mutex
	asleep bool    // waits for events: all pipes are armed
	loose  []*pipe // to be looked after before it sleeps

	events [64]unix.EpollEvent
	fired  int
	poll   func(fd uintptr) bool
	look   func(fd uintptr)
}

// How long a keeper leaves its connections to those that drive before it looks whether they still do: longer each time. Every look wakes a
// thread, which takes a core from this rank or from another one of the host.
const (
	shortPause = time.Millisecond
	longPause  = 8 * time.Millisecond
)

func newKeeper(f *Fabric) (*keeper, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	k := &keeper{f: f, fd: fd, file: os.NewFile(uintptr(fd), "epoll"), call: make(chan struct{}, 1)}
	if k.raw, err = k.file.SyscallConn(); err != nil {
		k.file.Close()
		return nil, err
	}
	k.poll = func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), k.events[:], 0)
		k.fired = max(n, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}
	k.look = func(fd uintptr) { k.poll(fd) }
	return k, nil
}

// close ends the keeper's goroutine.
func (k *keeper) close() {
	k.file.Close()
	k.rouse()
}

// rouse ends a pause. It costs little if there's none.
func (k *keeper) rouse() {
	select {
	case k.call <- struct{}{}:
	default:
	}
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	tick := time.NewTimer(shortPause)
	defer tick.Stop()
	var seen uint64
	for {
		for pause := shortPause; k.f.driven(&seen); pause = min(2*pause, longPause) {
			tick.Reset(pause)
			select {
			case <-k.call:
				seen = k.f.drives.Load()
			case <-tick.C:
			}
			k.mute()
		}
		k.tidy()
		if k.raw.Read(k.poll) != nil {
			return
		}
		k.fire()
	}
}

// fire takes the pipes that have fired on the list.
func (k *keeper) fire() {
	k.mu.Lock()
	k.asleep = false
	for _, ev := range k.events[:k.fired] {
		k.loosen(k.f.peers[ev.Fd].pipes[ev.Pad])
	}
	k.mu.Unlock()
}

// mute takes what has fired since the keeper paused. Else each further segment of an armed connection would wake the runtime's
// poller, which watches the set, for nothing.
func (k *keeper) mute() {
	k.raw.Control(k.look)
	k.fire()
}

// tidy moves what can be moved over all loose pipes, and arms them.
func (k *keeper) tidy() {
	k.mu.Lock()
	for len(k.loose) > 0 {
		last := len(k.loose) - 1
		pp := k.loose[last]
		k.loose[last] = nil
		k.loose = k.loose[:last]
		k.mu.Unlock()
		pp.read(backlog)
		pp.write(backlog)
		pp.p.mu.Lock()
		k.mu.Lock()
		pp.loose = false // from here on others mind it again
		pp.watch()
		pp.p.mu.Unlock()
	}
	k.asleep = true
	k.mu.Unlock()
}

// loosen puts a pipe on the list of those to look after. The caller holds the keeper's lock.
func (k *keeper) loosen(pp *pipe) {
	if !pp.loose {
		pp.loose = true
		k.loose = append(k.loose, pp)
	}
}

// mind sees to it that the keeper looks after a pipe on which something was left
// undone. The caller holds the peer's lock.
func (k *keeper) mind(pp *pipe) {
	k.mu.Lock()
	asleep := k.asleep
	if !asleep {
		k.loosen(pp)
	}
	k.mu.Unlock()
	if asleep {
		pp.watch()
	}
}

// help writes what was left undone on some loose pipes, for a goroutine that drives.
func (k *keeper) help() (moved bool) {
	var some [8]*pipe
	k.mu.Lock()
	n := copy(some[:], k.loose)
	k.mu.Unlock()
	for _, pp := range some[:n] {
		moved = pp.write(portion) || moved
	}
	return moved
}

// watch arms the pipe for what it waits for. The caller holds the lock.
func (pp *pipe) watch() {
	if pp.fd < 0 || pp.state != up || pp.blocked && !pp.pending() {
		return // what unblocks a pipe sees to it that it's armed
	}
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(pp.p.rank), Pad: int32(pp.index)}
	if !pp.blocked {
		ev.Events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if pp.pending() {
		ev.Events |= unix.EPOLLOUT
	}
	op := unix.EPOLL_CTL_MOD
	if !pp.known {
		op, pp.known = unix.EPOLL_CTL_ADD, true
	}
	if err := unix.EpollCtl(pp.keeper.fd, op, pp.fd, &ev); err != nil {
		// Out of memory or of watches: nobody would notice what comes.
		go pp.p.fail(lost(pp.index, os.NewSyscallError("epoll_ctl", err)))
	}
}
