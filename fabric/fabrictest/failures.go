package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// testTruncated sends more than was posted for: the receive fails, its buffer
// keeps its content, and the next message is received.
func testTruncated(t *testing.T, s *suite) {
	for _, posted := range []bool{true, false} {
		each(t, s.world(t, 2), func(r *rank) {
			for i, n := range []int{1, 3000, 500_000} {
				if r.Rank() == 0 {
					if posted {
						r.hear(1, i)
					}
					a, b := r.send(1, p2p(i), pattern(1, n)), r.send(1, p2p(i), pattern(2, n))
					if !posted {
						r.tell(1, i)
					}
					r.end(a)
					r.wait(b)
					continue
				}
				if !posted {
					r.hear(0, i)
				}
				buf, rest := pattern(9, n-1), make([]byte, n)
				m, next := r.recv(0, p2p(i), buf), r.recv(0, p2p(i), rest)
				if posted {
					r.tell(0, i)
				}
				var long *fabric.TruncatedError
				if err := r.end(m); !errors.As(err, &long) || long.Peer != 0 || long.Sent != n || long.Capacity != n-1 {
					fail("%d bytes into %d: %v", n, n-1, err)
				}
				verify(buf, 9)
				r.wait(next)
				verify(rest, 2)
			}
		})
	}
}

// testMismatch sends a collective message whose description differs from the
// receive that it matches.
func testMismatch(t *testing.T, s *suite) {
	here, there := fabric.Desc{1, 2, 3}, fabric.Desc{1, 2, 4}
	for i, n := range []int{0, 100, 200_000} {
		each(t, s.world(t, 2), func(r *rank) {
			k := key(fabric.Collective, i)
			if r.Rank() == 0 {
				m := r.message(1, k, pattern(1, n))
				m.Desc = there
				r.Send(m)
				r.end(m)
				r.hear(1, 0)
				return
			}
			buf := pattern(9, n)
			m := r.message(0, k, buf)
			m.Desc = here
			r.Recv(m)
			var mm *fabric.MismatchError
			if err := r.end(m); !errors.As(err, &mm) || mm.Peer != 0 || mm.Local != here || mm.Remote != there {
				fail("%v", err)
			}
			verify(buf, 9)
			if _, tells := r.bare.(fabric.Announcer); tells {
				e := r.events
				e.await("mismatch", func() bool { return len(e.mismatches) > 0 })
				if e.mismatches[0] != (mismatch{0, k, here, there}) {
					fail("told %+v", e.mismatches[0])
				}
			}
			r.tell(0, 0)
		})
	}
}

// announcing opens a world whose fabrics know what's announced, or skips the case.
func (s *suite) announcing(t *testing.T, size int) []*rank {
	ranks := s.world(t, size)
	if _, ok := ranks[0].bare.(fabric.Announcer); !ok {
		t.Skip("the fabric is no Announcer")
	}
	return ranks
}

// testMismatchAnnounced announces an operation and never posts a receive: a
// message of another operation is reported, whichever comes first.
func testMismatchAnnounced(t *testing.T, s *suite) {
	here, there := fabric.Desc{1}, fabric.Desc{2}
	for _, first := range []bool{true, false} {
		each(t, s.announcing(t, 2), func(r *rank) {
			k := key(fabric.Collective, 5)
			if r.Rank() == 0 {
				if first {
					r.hear(1, 0)
				}
				m := r.message(1, k, pattern(1, 40))
				m.Desc = there
				r.Send(m)
				if !first {
					r.tell(1, 0)
				}
				r.hear(1, 1)
				r.Cancel(m)
				return
			}
			if !first {
				r.hear(0, 0)
			}
			r.Announce(k.Comm, k.Tag, &here)
			if first {
				r.tell(0, 0)
			}
			e := r.events
			e.await("mismatch", func() bool { return len(e.mismatches) > 0 })
			if e.mismatches[0] != (mismatch{0, k, here, there}) {
				fail("told %+v", e.mismatches[0])
			}
			for tag := k.Tag + 1; tag <= k.Tag+20; tag++ {
				r.Announce(k.Comm, tag, &there)
			}
			if d, ok := r.Announced(k.Comm, k.Tag); d != here || !ok {
				fail("20 operations later it remembers %v, %v", d, ok)
			}
			if _, ok := r.Announced(k.Comm, k.Tag-1); ok {
				fail("it remembers an operation that there was not")
			}
			r.tell(0, 1)
		})
	}
}

// testWrongPeer names ranks that don't exist.
func testWrongPeer(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		for _, peer := range []int{-2, 2, 1 << 40} {
			if err := r.end(r.send(peer, p2p(0), nil)); err == nil {
				fail("sent to rank %d", peer)
			}
			if err := r.end(r.recv(peer, p2p(0), nil)); err == nil {
				fail("received from rank %d", peer)
			}
			if err := r.Control(peer, nil); err == nil {
				fail("control sent to rank %d", peer)
			}
		}
		if err := r.end(r.send(fabric.AnySource, p2p(0), nil)); err == nil {
			fail("sent to anyone")
		}
	})
}

// testCancelRecv withdraws receives; the messages go to those that are left.
func testCancelRecv(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		for i, n := range []int{10, 400_000} {
			if r.Rank() == 0 {
				r.hear(1, i)
				r.wait(r.send(1, p2p(i), pattern(1, n)))
				continue
			}
			buf := make([]byte, n)
			a, b, c := r.recv(0, p2p(i), pattern(8, n)), r.recv(0, p2p(i), buf), r.recv(fabric.AnySource, p2p(i), nil)
			r.Cancel(a)
			r.Cancel(c)
			for _, m := range []*fabric.Msg{a, c} {
				if err := r.end(m); !errors.Is(err, fabric.ErrCanceled) {
					fail("a canceled receive ends with %v", err)
				}
			}
			r.tell(0, i)
			r.wait(b)
			verify(buf, 1)
			r.Cancel(b) // done: no effect
			if b.Err != nil {
				fail("Cancel changed a message that was done: %v", b.Err)
			}
		}
	})
}

// testCancelSend withdraws a send that nothing is posted for. It may have been
// buffered; then it's done.
func testCancelSend(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		for i, n := range []int{0, 10, s.large} {
			if r.Rank() == 1 {
				r.hear(0, i)
				buf := make([]byte, n)
				m := r.recv(0, p2p(i+10), buf)
				r.wait(m)
				verify(buf, 2)
				continue
			}
			buf := pattern(1, n)
			m := r.send(1, p2p(i), buf)
			r.Cancel(m)
			if !m.Done() || m.Err != nil && !errors.Is(m.Err, fabric.ErrCanceled) {
				fail("done %v, error %v", m.Done(), m.Err)
			}
			fill(buf, 3)
			r.tell(1, i)
			r.wait(r.send(1, p2p(i+10), pattern(2, n)))
		}
	})
}

// moody is a context that panics when it's asked for its end.
type moody struct{ context.Context }

func (moody) Done() <-chan struct{} { panic("moody") }

// testGiveUp ends waits by timeout and by context, also by one that panics; the message stays posted and
// can still be received.
func testGiveUp(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		if r.Rank() == 0 {
			r.hear(1, 0)
			r.wait(r.send(1, p2p(0), pattern(1, 1000)))
			return
		}
		buf := make([]byte, 1000)
		m := r.recv(0, p2p(0), buf)
		r.w.Begin(nil, time.Millisecond)
		if err := r.Wait(m, r.w); !errors.Is(err, fabric.ErrTimeout) || m.Done() {
			fail("after the timeout: %v, done %v", err, m.Done())
		}
		cause := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(context.Background())
		gone := make(chan struct{})
		go func() { cancel(cause); close(gone) }()
		r.w.Begin(ctx, patience)
		if err := r.Wait(m, r.w); !errors.Is(err, cause) || m.Done() {
			fail("after the cancellation: %v, done %v", err, m.Done())
		}
		<-gone
		r.w.Begin(moody{context.Background()}, patience)
		err := r.Wait(m, r.w)
		if p, ok := errors.AsType[*fabric.PanicError](err); !ok || p.Value != "moody" || m.Done() {
			fail("after the panic: %v, done %v", err, m.Done())
		}
		r.tell(0, 0)
		r.wait(m)
		verify(buf, 1)
	})
}

// testAbort raises the abort state that a wait watches.
func testAbort(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		cause := errors.New("broken")
		w := newWaiter()
		w.Begin(nil, patience)
		m := r.recv(1-r.Rank(), p2p(0), make([]byte, 10))
		raised := make(chan struct{})
		go func() { w.Abort.Raise(cause); close(raised) }()
		if err := r.Wait(m, w); !errors.Is(err, cause) {
			fail("%v", err)
		}
		<-raised
		r.Cancel(m)
		if !errors.Is(m.Err, fabric.ErrCanceled) {
			fail("a canceled receive ends with %v", m.Err)
		}
	})
}

// testForget ends a communicator while messages of it wait: they're gone, and a
// later communicator of that number starts clean.
func testForget(t *testing.T, s *suite) {
	each(t, s.announcing(t, 2), func(r *rank) {
		k := fabric.Key{Comm: 9, Class: fabric.PointToPoint, Tag: 1}
		for i, n := range []int{8, 20_000} {
			if r.Rank() == 0 {
				m := r.send(1, k, pattern(i, n))
				r.tell(1, 0)
				r.hear(1, 1)
				r.Cancel(m)
				r.tell(1, 2)
				r.hear(1, 3) // or the message could come before the second Forget
				r.wait(r.send(1, k, pattern(i+5, n)))
				continue
			}
			r.hear(0, 0)
			r.Forget(9)
			r.tell(0, 1)
			r.hear(0, 2)
			r.Forget(9)
			r.tell(0, 3)
			buf := make([]byte, n)
			r.wait(r.recv(0, k, buf))
			if bytes.Equal(buf, pattern(i, n)) {
				fail("a forgotten message of %d bytes was received", n)
			}
			verify(buf, i+5)
		}
	})
}
