package shm

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
)

const longMessage = 3 << 20

func init() {
	bodies["send and stop"] = func(f *Fabric, w *fabric.Waiter) error {
		var b buffers
		defer b.free()
		buf := b.get(longMessage, true)
		copy(buf, pattern(7, longMessage))
		m := post(f, true, message(0, 0, buf))
		if err := f.Wait(post(f, true, message(0, 1, nil)), w); err != nil {
			return err
		}
		return errors.Join(f.Wait(m, w), f.Wait(post(f, false, message(0, 2, nil)), w))
	}
}

// A rank announces a message and is stopped. Its receive is withdrawn; the next receive gets it when the rank goes on.
func TestWithdrawnFromStopped(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"pieces": {"cma": "off", "map": "off"}, "segment": {"cma": "off"}, "memory": {"map": "off"}, "auto": nil,
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			j := startJob(t, 2, "send and stop", options)
			w := newWaiter()
			if err := j.Wait(post(j.Fabric, false, message(1, 1, nil)), w); err != nil {
				t.Fatal(err)
			}
			child := j.children[1].Process
			child.Signal(unix.SIGSTOP)
			var state unix.WaitStatus
			if _, err := unix.Wait4(child.Pid, &state, unix.WUNTRACED, nil); err != nil || !state.Stopped() {
				t.Fatal(state, err)
			}
			m := message(1, 0, make([]byte, longMessage))
			for range 2 {
				m.Reset(nil)
				post(j.Fabric, false, m)
				w.Begin(nil, 10*time.Millisecond)
				if err := j.Wait(m, w); err == nil {
					break // it could be read without the rank's help
				} else if !errors.Is(err, fabric.ErrTimeout) {
					t.Fatal(err)
				}
				j.Cancel(m)
				if m.Err == nil {
					break
				}
				if !errors.Is(m.Err, fabric.ErrCanceled) {
					t.Fatal(m.Err)
				}
			}
			child.Signal(unix.SIGCONT)
			w.Begin(nil, patience)
			if m.Err != nil {
				m.Reset(nil)
				if err := j.Wait(post(j.Fabric, false, m), w); err != nil {
					t.Fatal(err)
				}
			}
			if m.N != longMessage || !bytes.Equal(m.Bytes(), pattern(7, longMessage)) {
				t.Errorf("other bytes arrived, %d of them", m.N)
			}
			if err := j.Wait(post(j.Fabric, true, message(1, 2, nil)), w); err != nil {
				t.Error(err)
			}
			j.finish(t, 1)
		})
	}
}

// A receive is withdrawn when some pieces of its message have come. The next receive gets that message, and the one
// after it the next message under its key.
func TestWithdrawnBetweenPieces(t *testing.T) {
	first, second := pattern(1, longMessage), pattern(2, 100_000)
	// pair is two ranks for which only the test makes progress.
	type pair struct {
		from, to *Fabric
		sent     [2]*fabric.Msg
	}
	receive := func(n int) *fabric.Msg { return message(0, 0, make([]byte, n)) }
	until := func(x *pair, ms ...*fabric.Msg) error {
		for deadline := time.Now().Add(patience); ; {
			left := 0
			for _, m := range ms {
				if !m.Done() {
					left++
				}
			}
			if left == 0 {
				return nil
			}
			if time.Now().After(deadline) {
				return errors.New("nothing moves")
			}
			x.from.poll()
			x.to.poll()
		}
	}
	// takes receives a message that must be want.
	takes := func(x *pair, want []byte) error {
		m := post(x.to, false, receive(longMessage))
		if err := until(x, m); err != nil {
			return err
		}
		if m.Err != nil || m.N != len(want) || !bytes.Equal(m.Bytes()[:m.N], want) {
			return fmt.Errorf("received %d bytes instead of %d, or others: %v", m.N, len(want), m.Err)
		}
		return nil
	}
	both := func(x *pair) error {
		if err := takes(x, first); err != nil {
			return err
		}
		return takes(x, second)
	}
	for name, then := range map[string]func(x *pair) error{
		"received at once": both,
		"received when all has come": func(x *pair) error {
			return errors.Join(until(x, x.sent[0]), both(x))
		},
		"withdrawn again": func(x *pair) error {
			m := post(x.to, false, receive(longMessage))
			x.to.poll()
			if !x.to.abandonPull(m, fabric.ErrCanceled) || m.Err == nil {
				return fmt.Errorf("it's not withdrawn: %v", m.Err)
			}
			return both(x)
		},
		"too long for the next": func(x *pair) error {
			m := post(x.to, false, receive(100))
			var long *fabric.TruncatedError
			if err := until(x, m); err != nil || !errors.As(m.Err, &long) {
				return errors.Join(fmt.Errorf("received with %v", m.Err), err)
			}
			return errors.Join(until(x, x.sent[0]), takes(x, second))
		},
		"withdrawn by its sender": func(x *pair) error {
			if !x.from.Withdraw(x.sent[0]) {
				return errors.New("it's not withdrawn")
			}
			return takes(x, second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ranks := openWorld(t, 2, map[string]string{"cma": "off", "map": "off"})
			x := &pair{from: ranks[0], to: ranks[1]}
			x.from.acquire()
			x.to.acquire()
			err := func() error {
				x.sent = [2]*fabric.Msg{post(x.from, true, message(1, 0, first)), post(x.from, true, message(1, 0, second))}
				m := post(x.to, false, receive(longMessage))
				x.to.poll()   // asks for pieces
				x.from.poll() // sends as many as there's room for
				x.to.poll()
				done := 0
				x.to.peers[0].staged.all(func(_ uint64, at **pull) { done = (*at).done })
				if done == 0 || done == longMessage {
					return fmt.Errorf("%d bytes have come", done)
				}
				if !x.to.abandonPull(m, fabric.ErrCanceled) || !errors.Is(m.Err, fabric.ErrCanceled) {
					return fmt.Errorf("withdrawn with %v", m.Err)
				}
				clear(m.Bytes()) // it's the poster's again
				return then(x)
			}()
			x.from.unlock()
			x.to.unlock()
			if err != nil {
				t.Error(err)
			}
			closeAll(t, ranks)
		})
	}
}

// The sender of a message dies of which some pieces have come, and whose receive was withdrawn: the next one hears of
// it.
func TestWithdrawnThenDead(t *testing.T) {
	ranks := openWorld(t, 2, map[string]string{"cma": "off", "map": "off"})
	for _, f := range ranks {
		f.acquire()
	}
	post(ranks[0], true, message(1, 0, pattern(1, longMessage)))
	m := post(ranks[1], false, message(0, 0, make([]byte, longMessage)))
	ranks[1].poll()
	ranks[0].poll()
	ranks[1].poll()
	if !ranks[1].abandonPull(m, fabric.ErrCanceled) || !errors.Is(m.Err, fabric.ErrCanceled) {
		t.Errorf("withdrawn with %v", m.Err)
	}
	ranks[0].Kill()
	for _, f := range ranks { // the first one's end is news for the second
		for deadline := time.Now().Add(patience); f.wanted.Load() == 0 && time.Now().Before(deadline); {
			runtime.Gosched() // until the note is queued: no other goroutine makes progress
		}
		f.unlock()
	}
	w := newWaiter()
	for _, m := range []*fabric.Msg{m, message(0, 0, make([]byte, 10))} { // the second finds no message any more
		m.Reset(w)
		var lost *fabric.PeerError
		if err := ranks[1].Wait(post(ranks[1], false, m), w); !errors.As(err, &lost) || lost.Peer != 0 {
			t.Errorf("received with %v", err)
		}
	}
	closeAll(t, ranks)
}
