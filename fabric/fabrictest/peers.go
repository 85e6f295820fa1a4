package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// testControl sends control payloads of all sizes; they come in order.
func testControl(t *testing.T, s *suite) {
	sizes := []int{0, 1, 100, fabric.MaxControl - 1, fabric.MaxControl, 7, 0, 64}
	each(t, s.world(t, 3), func(r *rank) {
		for p := range r.peers {
			if p == r.Rank() {
				continue
			}
			for i, n := range sizes {
				buf := pattern(10*r.Rank()+i, n)
				must(r.Control(p, buf))
				clear(buf) // it's ours again
			}
			if r.Control(p, make([]byte, fabric.MaxControl+1)) == nil {
				fail("a control payload above the limit was taken")
			}
		}
		e := r.events
		e.await("control payloads", func() bool { return len(e.controls) == 2*len(sizes) })
		next := map[int]int{}
		for _, c := range e.controls {
			i := next[c.peer]
			next[c.peer]++
			if !bytes.Equal(c.payload, pattern(10*c.peer+i, sizes[i])) {
				fail("payload %d from rank %d has %d bytes; want %d", i, c.peer, len(c.payload), sizes[i])
			}
		}
		r.meet(1)
	})
}

// testLastWords closes a rank right after it has said why, which is its first message to the others.
func testLastWords(t *testing.T, s *suite) {
	for speaker := range 3 {
		each(t, s.world(t, 3), func(r *rank) {
			for p := range r.peers {
				if r.Rank() == speaker && p != speaker {
					must(r.Control(p, pattern(p, 100)))
				}
			}
			if r.Rank() == speaker {
				must(r.Close(context.Background()))
				return
			}
			e := r.events
			e.await("last words", func() bool { return len(e.controls) == 1 })
			if c := e.controls[0]; c.peer != speaker || !bytes.Equal(c.payload, pattern(r.Rank(), 100)) {
				fail("heard %d bytes of rank %d", len(c.payload), c.peer)
			}
		})
	}
}

// testLastWordsOfAll has all ranks talk to each other and leave: connections are made from both sides, and no
// rank waits.
func testLastWordsOfAll(t *testing.T, s *suite) {
	each(t, s.world(t, 3), func(r *rank) {
		for p := range r.peers {
			if p != r.Rank() {
				r.Control(p, pattern(p, 100)) // it may have left
			}
		}
		must(r.Close(context.Background()))
		r.events.mu.Lock()
		defer r.events.mu.Unlock()
		if len(r.events.lost) > 0 {
			fail("told of losses %v", r.events.lost)
		}
	})
}

// testControlFromHandler answers control payloads from within the handler.
func testControlFromHandler(t *testing.T, s *suite) {
	const turns = 100
	ranks := s.world(t, 2)
	for _, r := range ranks {
		r.events.mu.Lock()
		r.events.onControl = func(peer int, payload []byte) {
			if n := binary.LittleEndian.Uint32(payload); n < turns {
				r.Control(peer, binary.LittleEndian.AppendUint32(nil, n+1))
			}
		}
		r.events.mu.Unlock()
	}
	if err := ranks[0].Control(1, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	each(t, ranks, func(r *rank) {
		e := r.events
		e.await("turns", func() bool { return len(e.controls) >= turns/2 })
		r.meet(0)
	})
}

// testPeerLost ends a rank without a goodbye while others wait for it.
func testPeerLost(t *testing.T, s *suite) {
	if s.kill == nil {
		t.Skip("the suite was given no way to kill a rank")
	}
	each(t, s.world(t, 3), func(r *rank) {
		const dead = 2
		if r.Rank() == dead {
			r.meet(0)
			r.hear(0, 1)
			r.hear(1, 1)
			s.kill(r.bare)
			return
		}
		r.meet(0)
		ms := []*fabric.Msg{
			r.recv(dead, p2p(0), make([]byte, 10)), r.recv(dead, p2p(1), make([]byte, s.large)),
		}
		out := r.send(dead, p2p(2), make([]byte, s.large))
		r.tell(dead, 1)
		lost := func(what string, m *fabric.Msg) {
			var p *fabric.PeerError
			if err := r.end(m); !errors.As(err, &p) || p.Peer != dead {
				fail("%s: %v", what, err)
			}
		}
		for _, m := range ms {
			lost("posted before", m)
		}
		if r.end(out) != nil { // else it was buffered
			lost("sent before", out)
		}
		e := r.events
		e.await("loss of rank 2", func() bool { return len(e.lost[dead]) > 0 })
		lost("received after", r.recv(dead, p2p(3), make([]byte, 10)))
		lost("sent after", r.send(dead, p2p(3), make([]byte, 10)))

		// The survivors go on.
		other := 1 - r.Rank()
		buf := make([]byte, 100_000)
		in := r.recv(fabric.AnySource, p2p(4), buf)
		out = r.send(other, p2p(4), pattern(r.Rank(), len(buf)))
		r.wait(in, out)
		verify(buf, other)
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.lost[dead]) != 1 || len(e.lost) != 1 {
			fail("told of losses %v", e.lost)
		}
		var p *fabric.PeerError
		if !errors.As(e.lost[dead][0], &p) || p.Peer != dead {
			fail("told %v", e.lost[dead][0])
		}
	})
}

// testSilentPeerLost ends a rank that has not sent anything, while another rank receives from any source: it's told.
func testSilentPeerLost(t *testing.T, s *suite) {
	if s.kill == nil {
		t.Skip("the suite was given no way to kill a rank")
	}
	each(t, s.world(t, 3), func(r *rank) {
		const dead = 2
		switch r.Rank() {
		case 0:
			buf := make([]byte, 100)
			m := r.recv(fabric.AnySource, p2p(0), buf)
			r.wait(m)
			expect(m, len(buf), 1)
			verify(buf, 7)
		case 1:
			e := r.peers[0].events
			e.await("loss of rank 2, by rank 0", func() bool { return len(e.lost[dead]) > 0 })
			r.wait(r.send(0, p2p(0), pattern(7, 100)))
		case dead:
			s.kill(r.bare)
		}
	})
}

// testGoodbye closes a rank: messages that it had sent by then can still be received, and no peer
// reports it lost.
func testGoodbye(t *testing.T, s *suite) {
	closed := make(chan bool, 1) // whether the small message had been sent
	each(t, s.world(t, 3), func(r *rank) {
		switch r.Rank() {
		case 0:
			r.meet(0)
			small := r.send(1, p2p(0), pattern(1, 16))
			r.wait(r.send(1, p2p(1), pattern(2, 300_000)))
			sent := small.Done() // unless nothing is buffered
			must(r.Close(context.Background()))
			closed <- sent
		case 1:
			small, large := make([]byte, 16), make([]byte, 300_000)
			m := r.recv(0, p2p(1), large)
			never := r.recv(0, p2p(2), make([]byte, 4))
			r.meet(0)
			r.wait(m)
			verify(large, 2)
			select {
			case sent := <-closed:
				if sent {
					r.wait(r.recv(0, p2p(0), small))
					verify(small, 1)
				}
			case <-time.After(patience):
				fail("rank 0 is not closed after %v", patience)
			}
			var p *fabric.PeerError
			if err := r.end(never); !errors.As(err, &p) || p.Peer != 0 {
				fail("receive from a rank that has closed: %v", err)
			}
			r.tell(2, 1)
		default:
			r.meet(0)
			r.hear(1, 1)
		}
		r.events.mu.Lock()
		defer r.events.mu.Unlock()
		if len(r.events.lost) > 0 {
			fail("a goodbye was taken for a loss: %v", r.events.lost)
		}
	})
}

// testClose closes a rank with messages posted, twice.
func testClose(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		r.meet(0)
		in := r.recv(1-r.Rank(), p2p(0), make([]byte, 10))
		anyone := r.recv(fabric.AnySource, p2p(0), make([]byte, 10))
		r.meet(1)
		if r.Rank() == 1 {
			r.end(in) // until rank 0 has closed
		}
		must(r.Close(context.Background()))
		must(r.Close(context.Background()))
		for _, m := range []*fabric.Msg{in, anyone} {
			if err := r.end(m); r.Rank() == 0 && !errors.Is(err, fabric.ErrClosed) || err == nil {
				fail("posted when the fabric closed: %v", err)
			}
		}
		for what, m := range map[string]*fabric.Msg{
			"send": r.send(1-r.Rank(), p2p(1), nil), "receive": r.recv(1-r.Rank(), p2p(1), nil),
			"send to itself": r.send(r.Rank(), p2p(1), nil),
		} {
			if err := r.end(m); !errors.Is(err, fabric.ErrClosed) {
				fail("%s after Close: %v", what, err)
			}
		}
		if r.Control(1-r.Rank(), nil) == nil {
			fail("control after Close")
		}
	})
}
