package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
)

// watcher raises its waiter's abort state when a peer is lost, as a communicator does.
type watcher struct {
	abort *fabric.Abort
	lost  chan int
}

func watch(f *Fabric, w *fabric.Waiter) *watcher {
	x := &watcher{w.Abort, make(chan int, f.size)}
	f.Handle(x)
	return x
}

func (x *watcher) PeerLeft(int) {}

func (x *watcher) PeerLost(peer int, err error) {
	x.abort.Raise(err)
	x.lost <- peer
}
func (x *watcher) Mismatch(int, fabric.Key, fabric.Desc, fabric.Desc) {}
func (x *watcher) Control(int, []byte)                                {}

const victim = 2

// scenes are what ranks wait for when the victim dies; the victim itself never returns.
var scenes = map[string]func(f *Fabric, w *fabric.Waiter) error{
	"receive": func(f *Fabric, w *fabric.Waiter) error {
		return f.Wait(post(f, false, message(victim, 0, make([]byte, 10))), w)
	},
	"send": func(f *Fabric, w *fabric.Waiter) error {
		return f.Wait(post(f, true, message(victim, 0, make([]byte, 10<<20))), w)
	},
	"space": func(f *Fabric, w *fabric.Waiter) error {
		sp, err := f.Space(context.Background(), 1, f.locals, 4096)
		if err != nil {
			return err
		}
		defer sp.Close()
		for seq := uint64(1); ; seq++ {
			w.Begin(nil, patience)
			if err := sp.Begin(w, seq, &fabric.Desc{}, fabric.Place{}, fabric.Place{}); err != nil {
				return err
			}
			sp.Notify(1)
			if err := sp.AwaitAll(w, 1); err != nil {
				return err
			}
			sp.End()
			if f.rank == victim && seq == 1000 {
				f.Wait(post(f, true, message(0, 99, nil)), w)
			}
		}
	},
	"exchange": func(f *Fabric, w *fabric.Waiter) error {
		buf, in := make([]byte, 3<<20), make([]byte, 3<<20)
		for i := 0; ; i++ {
			w.Begin(nil, patience)
			next, prev := (f.rank+1)%f.size, (f.rank+f.size-1)%f.size
			a, b := post(f, true, message(next, 0, buf)), post(f, false, message(prev, 0, in))
			if err := f.Wait(a, w); err != nil {
				f.Cancel(a)
				f.Cancel(b)
				return err
			}
			if err := f.Wait(b, w); err != nil {
				f.Cancel(b)
				return err
			}
			if f.rank == victim && i == 20 {
				f.Wait(post(f, true, message(0, 99, nil)), w)
			}
		}
	},
}

func init() {
	for name, scene := range scenes {
		bodies["die in "+name] = func(f *Fabric, w *fabric.Waiter) error {
			if f.rank == victim {
				if name == "receive" || name == "send" {
					f.Wait(post(f, true, message(0, 99, nil)), w)
					select {}
				}
				scene(f, w)
				select {}
			}
			return mourn(f, w, scene)
		}
	}
}

// mourn plays the scene, which must end by the victim's death.
func mourn(f *Fabric, w *fabric.Waiter, scene func(*Fabric, *fabric.Waiter) error) error {
	x := watch(f, w)
	err := scene(f, w)
	var lost *fabric.PeerError
	// Another survivor may already have left because of the death.
	if !errors.As(err, &lost) || lost.Peer != victim && !errors.Is(err, fabric.ErrLeft) {
		return fmt.Errorf("the death of rank %d shows as: %w", victim, err)
	}
	select {
	case r := <-x.lost:
		if r != victim {
			return fmt.Errorf("told of the loss of rank %d", r)
		}
	case <-time.After(patience):
		return errors.New("not told of the loss")
	}
	return nil
}

// A rank is killed while all others are in the middle of something. Each learns
// who it was, those that are left can close, and nothing is left of the dead.
func TestKill(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			before := sockets(t)
			j := startJob(t, 4, "die in "+name, nil)
			w := newWaiter()
			ready := post(j.Fabric, false, message(victim, 99, nil))
			var killed time.Time
			var kill sync.WaitGroup
			kill.Go(func() {
				for !ready.Done() {
					time.Sleep(100 * time.Microsecond)
				}
				killed = time.Now()
				j.children[victim].Process.Signal(unix.SIGKILL)
			})
			if err := mourn(j.Fabric, w, scene); err != nil {
				t.Error(err)
			}
			kill.Wait()
			t.Logf("noticed %v after the kill", time.Since(killed))
			j.finish(t, 1, 3)
			j.children[victim].Wait()
			if n := sockets(t); n > before {
				t.Errorf("%d sockets of ours are left, %d were there before", n, before)
			}
		})
	}
}

// sockets counts the abstract sockets of this package's naming that this process
// holds; those of a dead process are gone with it.
func sockets(t *testing.T) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Skip(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	mine := map[string]bool{}
	for _, fd := range fds {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			if inode, ok := strings.CutPrefix(link, "socket:["); ok {
				mine[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) == 8 && mine[f[6]] && strings.HasPrefix(f[7], "@chorus-") {
			n++
		}
	}
	return n
}

func init() {
	bodies["hold memory"] = func(f *Fabric, w *fabric.Waiter) error {
		b, err := hostmem.AllocZero(64 << 20)
		if err != nil {
			return err
		}
		m := message(0, 0, b.Bytes()[:8])
		*(*uint64)(unsafe.Pointer(&b.Bytes()[0])) = uint64(uintptr(unsafe.Pointer(&b.Bytes()[0])))
		f.Wait(post(f, true, m), w)
		return f.Wait(post(f, false, message(0, 1, nil)), w)
	}
}

// A rank that stops answering, without dying, doesn't hold up those that give up on it.
func TestStopped(t *testing.T) {
	checkLeaks(t)
	j := startJob(t, 2, "hold memory", nil)
	w := newWaiter()
	if err := j.Wait(post(j.Fabric, false, message(1, 0, make([]byte, 8))), w); err != nil {
		t.Fatal(err)
	}
	child := j.children[1].Process
	if err := child.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m := post(j.Fabric, true, message(1, 5, make([]byte, 1<<20)))
	w.Begin(nil, 10*time.Millisecond)
	if err := j.Wait(m, w); !errors.Is(err, fabric.ErrTimeout) {
		t.Errorf("sent to a stopped rank: %v", err)
	}
	j.Cancel(m)
	if !errors.Is(m.Err, fabric.ErrCanceled) {
		t.Errorf("canceled: %v", m.Err)
	}
	w.Begin(nil, 10*time.Millisecond)
	if _, err := j.peers[1].resolve(w, fabric.Place{Segment: 1 << 40}, 8); !errors.Is(err, fabric.ErrTimeout) {
		t.Errorf("asked a stopped rank for a segment: %v", err)
	}
	gaveUp, aborted := errors.New("gave up"), newWaiter()
	aborted.Abort.Raise(gaveUp)
	if _, err := j.peers[1].resolve(aborted, fabric.Place{Segment: 1 << 41}, 8); !errors.Is(err, gaveUp) {
		t.Errorf("asked a stopped rank for a segment, and gave up: %v", err)
	}
	for range 100 {
		if err := j.Control(1, make([]byte, fabric.MaxControl)); err != nil {
			t.Error(err)
		}
	}
	child.Signal(unix.SIGCONT)
	w.Begin(nil, patience)
	if err := j.Wait(post(j.Fabric, true, message(1, 1, nil)), w); err != nil {
		t.Error(err)
	}
	j.finish(t, 1)
}

// A message is withdrawn that its receiver has begun to read, and was stopped in that: the receiver is taken for lost.
func TestStoppedWhileReading(t *testing.T) {
	checkLeaks(t)
	ranks := openWorld(t, 2, nil)
	f, w := ranks[0], newWaiter()
	lost := watch(f, w).lost
	m := post(f, true, message(1, 0, make([]byte, 1<<20)))
	id := m.Priv[0]
	f.peers[1].claims[uint32(id)].word.Store(claimWord(id, claimTaken))
	f.Cancel(m)
	if m.Err == nil || !strings.Contains(m.Err.Error(), errStuck.Error()) {
		t.Errorf("canceled: %v", m.Err)
	}
	if who := <-lost; who != 1 {
		t.Errorf("rank %d is lost", who)
	}
	closeAll(t, ranks)
}
