package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/secure"
)

// A fakePeer plays rank 1 of a world of two, message by message, against a real rank 0.
type fakePeer struct {
	t     testing.TB
	f     *Fabric // rank 0
	own   net.Listener
	lost  chan error
	conns []net.Conn
}

func (s *fakePeer) PeerLeft(int)                                       {}
func (s *fakePeer) PeerLost(_ int, err error)                          { s.lost <- err }
func (s *fakePeer) Mismatch(int, fabric.Key, fabric.Desc, fabric.Desc) {}
func (s *fakePeer) Control(int, []byte)                                {}

func newFakePeer(t testing.TB, options map[string]string) *fakePeer {
	t.Helper()
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakePeer{t: t, own: own, lost: make(chan error, 4)}
	end, err := listenAt(t.Context(), fabric.Config{Rank: 0, Size: 2, HostID: "h", Options: options,
		Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	mine := end.(*endpoint).mine
	mine.addrs, mine.token = encodeAddrs(addrs(own)), make([]byte, tokenBytes)
	f, err := end.Join(t.Context(), [][]byte{end.Card(), mine.encode()}, transport.NewMatcher(2))
	if err != nil {
		t.Fatal(err)
	}
	s.f = f.(*Fabric)
	s.f.Handle(s)
	t.Cleanup(func() {
		own.Close()
		for _, c := range s.conns {
			c.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		s.f.Close(ctx)
	})
	return s
}

// dial connects and sends bytes.
func (s *fakePeer) dial(b []byte) net.Conn {
	c, err := net.Dial("tcp", s.f.listeners[0].Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.conns = append(s.conns, c)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.Write(b)
	return c
}

func (s *fakePeer) hello() hello { return hello{from: 1, to: 0, size: 2} }

// greet connects, proves that it knows the key, and returns the answer.
func (s *fakePeer) greet(h hello, key secure.Secret) (net.Conn, answer, error) {
	c := s.dial(nil)
	if err := key.Initiate(c, h.encode()); err != nil {
		return c, 0, err
	}
	var a [1]byte
	_, err := io.ReadFull(c, a[:])
	return c, answer(a[0]), err
}

// join says hello for a connection and awaits the welcome.
func (s *fakePeer) join(index uint32) net.Conn {
	h := s.hello()
	h.index = index
	c, a, err := s.greet(h, s.f.key)
	if err != nil || a != welcome {
		s.t.Fatalf("answer %q, %v", a, err)
	}
	return c
}

// expectLost waits for the loss of rank 1 and checks its cause.
func (s *fakePeer) expectLost(cause string) {
	s.t.Helper()
	select {
	case err := <-s.lost:
		var p *fabric.PeerError
		if !errors.As(err, &p) || p.Peer != 1 || !strings.Contains(err.Error(), cause) {
			s.t.Errorf("lost for %v; want %q", err, cause)
		}
	case <-time.After(20 * time.Second):
		s.t.Errorf("rank 1 isn't lost; want %q", cause)
	}
}

// TestForeignConnections has no effect: they're closed, and the job goes on.
func TestForeignConnections(t *testing.T) {
	s := newFakePeer(t, nil)
	bad := func(change func(*hello)) []byte {
		h := s.hello()
		change(&h)
		return h.encode()
	}
	good := s.hello()
	for name, b := range map[string][]byte{
		"http":           []byte("GET / HTTP/1.1\r\nHost: example.com\r\nAccept: everything\r\n\r\n"),
		"no proof":       append(good.encode(), make([]byte, secure.HandshakeBytes)...),
		"replayed":       captureHandshake(t, s),
		"half a hello":   good.encode()[:10],
		"half a proof":   append(good.encode(), make([]byte, secure.HandshakeBytes-1)...),
		"another rank":   bad(func(h *hello) { h.to = 1 }),
		"another magic":  append([]byte("CHORUSX"), bad(func(*hello) {})[7:]...),
		"older version":  append([]byte("CHORUST\x01"), bad(func(*hello) {})[8:]...),
		"enormous index": bad(func(h *hello) { h.index = 1<<32 - 1 }),
		"zeros":          make([]byte, 1000),
		"nothing":        nil,
	} {
		c := s.dial(b)
		c.(*net.TCPConn).CloseWrite()
		heard, err := io.ReadAll(c)
		if len(heard) > 32 || len(heard) > 0 && len(b) < helloBytes+32 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: heard %q, %v; want an end", name, heard, err)
		}
	}
	// A peer that knows the key can't pose as another rank.
	for name, change := range map[string]func(*hello){
		"another rank":  func(h *hello) { h.to = 1 },
		"itself":        func(h *hello) { h.from = 0 },
		"unknown rank":  func(h *hello) { h.from = 2 },
		"another size":  func(h *hello) { h.size = 3 },
		"unknown index": func(h *hello) { h.index = 9 },
	} {
		h := s.hello()
		change(&h)
		if c, a, err := s.greet(h, s.f.key); err != io.EOF {
			t.Errorf("%s: answer %q, %v", name, a, err)
		} else {
			c.Close()
		}
	}
	if _, a, err := s.greet(good, secure.Secret{}.Derive("tcp link", make([]byte, tokenBytes))); !errors.Is(err,
		secure.ErrRefused) {
		t.Errorf("another key: answer %q, %v", a, err)
	}
	silent := s.dial([]byte("CHO")) // keeps quiet; Close doesn't wait for it
	defer silent.Close()

	c := s.join(0)
	if _, err := c.Write(append(headerOf(header{kind: kindEager, payload: 2, length: 2, class: fabric.PointToPoint}),
		"hi"...)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, 20*time.Second)
	m := &fabric.Msg{Peer: 1, Key: fabric.Key{Class: fabric.PointToPoint}, Buf: unsafe.Pointer(&buf[0]), Len: 2}
	m.Reset(w)
	s.f.Recv(m)
	if err := s.f.Wait(m, w); err != nil || string(buf) != "hi" {
		t.Errorf("received %q, %v", buf, err)
	}
	if _, a, err := s.greet(good, s.f.key); err != nil || a != refused {
		t.Errorf("a second connection under the same index: %q, %v", a, err)
	}
	select {
	case err := <-s.lost:
		t.Errorf("lost rank 1: %v", err)
	default:
	}
}

// captureHandshake returns the bytes that a peer with the key has sent to connect, for a pipe that is up
// by then.
func captureHandshake(t *testing.T, s *fakePeer) []byte {
	t.Helper()
	var sent bytes.Buffer
	h := s.hello()
	h.index = 1
	c := s.dial(nil)
	if err := s.f.key.Initiate(struct {
		io.Reader
		io.Writer
	}{c, io.MultiWriter(c, &sent)}, h.encode()); err != nil {
		t.Fatal(err)
	}
	return sent.Bytes()
}

// TestFlood opens unauthenticated connections while messages pass.
func TestFlood(t *testing.T) {
	n := 300
	if os.Getenv("CHORUS_TEST_LONG") == "1" {
		n = 10_000
	}
	s := newFakePeer(t, nil)
	conn := s.join(0)
	good := s.hello()
	for range 20 {
		s.dial(nil) // keeps quiet as long as it can
	}
	var flood sync.WaitGroup
	flood.Go(func() {
		for i := range n {
			c, err := net.Dial("tcp", s.f.listeners[0].Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			c.Write([][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), good.encode(), make([]byte, 200), nil}[i%4])
			c.Close()
		}
	})
	for i := range 100 {
		conn.Write(append(headerOf(header{kind: kindEager, id: uint64(i), payload: 1, length: 1, class: fabric.PointToPoint}),
			byte(i)))
		var got [1]byte
		w := fabric.NewWaiter(fabric.NewAbort())
		w.Begin(nil, 20*time.Second)
		m := &fabric.Msg{Peer: 1, Key: fabric.Key{Class: fabric.PointToPoint}, Buf: unsafe.Pointer(&got[0]), Len: 1}
		m.Reset(w)
		s.f.Recv(m)
		if err := s.f.Wait(m, w); err != nil || got[0] != byte(i) {
			t.Fatalf("received %d, %v", got, err)
		}
	}
	s.join(1) // there's room for who belongs here
	flood.Wait()
}

// TestHostileFrames come from a peer that knows the key: the link ends, with the reason.
func TestHostileFrames(t *testing.T) {
	options := map[string]string{"window": "1000", "eager": "1000"}
	ask := headerOf(header{kind: kindAsk, id: 0, length: 100})
	for _, c := range []struct {
		name  string
		index uint32
		bytes []byte
		cause string
	}{
		{"garbage", 0, make([]byte, headerBytes), "not a frame"},
		{"unknown kind", 0, headerOf(header{kind: kindEnd}), "unknown kind"},
		{"beyond the window", 0, headerOf(header{kind: kindPush, length: 5000}), "window"},
		{"beyond the window in all", 0, append(append(headerOf(header{kind: kindPush, length: 600}),
			headerOf(header{kind: kindPush, id: 1, length: 600})...), 0), "window"},
		{"announced twice", 0, append(append([]byte{}, ask...), ask...), "announced after"},
		{"chunk where none belongs", 0, headerOf(header{kind: kindChunk, payload: 1, length: 1}), "on connection 0"},
		{"message where none belongs", 1, ask, "on connection 1"},
		{"chunk that wasn't asked for", 1, headerOf(header{kind: kindChunk, id: 0, payload: 1, length: 100}),
			"not asked for"},
		{"chunk of another length", 1, headerOf(header{kind: kindChunk, id: 0, payload: 1, length: 101}), "announced with"},
		{"credit without end", 0, headerOf(header{kind: kindCredit, length: 1 << 40}), "credit"},
		{"end in a header", 0, ask[:20], "goodbye"},
		{"no goodbye", 0, nil, "goodbye"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFakePeer(t, options)
			first := s.join(0)
			conn := first
			if c.index > 0 {
				first.Write(ask)
				conn = s.join(c.index)
			}
			conn.Write(c.bytes)
			if len(c.bytes)%headerBytes != 1 {
				conn.(*net.TCPConn).CloseWrite()
			}
			s.expectLost(c.cause)
		})
	}
}

// TestSilentPeer is connected but says nothing, as after a cut of the cable.
func TestSilentPeer(t *testing.T) {
	s := newFakePeer(t, map[string]string{"heartbeat": "5ms"})
	s.join(0)
	s.expectLost("nothing heard")
}

// TestGoodbyeOvertakes lets the goodbye on the first connection be read while the connection with the
// message's bytes has been agreed on, but isn't up yet at this end.
func TestGoodbyeOvertakes(t *testing.T) {
	s := newFakePeer(t, nil)
	first := s.join(0)
	p := s.f.peers.To(1)
	p.mu.Lock()
	p.pipes[1].state = accepting
	p.mu.Unlock()
	buf := make([]byte, 3)
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, 20*time.Second)
	m := &fabric.Msg{Peer: 1, Key: fabric.Key{Class: fabric.PointToPoint}, Buf: unsafe.Pointer(&buf[0]), Len: 3}
	m.Reset(w)
	s.f.Recv(m)
	first.Write(append(headerOf(header{kind: kindPush, length: 3, class: fabric.PointToPoint}),
		headerOf(header{kind: kindGoodbye})...))
	for over := false; !over; runtime.Gosched() { // until the goodbye has been dealt with
		p.mu.Lock()
		over = p.pipes[0].state == closed
		p.mu.Unlock()
	}

	back := make(chan net.Conn)
	go func() {
		c, err := s.own.Accept()
		if err != nil {
			t.Error(err)
		}
		back <- c
	}()
	c, err := net.Dial("tcp", s.own.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	data := <-back
	s.conns = append(s.conns, data)
	end, err := s.f.claim(c.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	p.pipes[1].install(c.(*net.TCPConn), c, end)
	data.Write(append(headerOf(header{kind: kindChunk, payload: 3, length: 3}), "end"...))
	data.Write(headerOf(header{kind: kindGoodbye}))
	if err := s.f.Wait(m, w); err != nil || string(buf) != "end" {
		t.Errorf("received %q, %v", buf, err)
	}
}

// TestGoodbyeAfterAnnouncement closes the fabric when the bytes of a message have gone over their connection, but its
// announcement is still queued on the first one, which another goroutine is writing.
func TestGoodbyeAfterAnnouncement(t *testing.T) {
	s := newFakePeer(t, map[string]string{"eager": "0"})
	first, data := s.join(0), s.join(1)
	p := s.f.peers.To(1)
	until := func(holds func() bool) {
		p.mu.Lock()
		for !holds() {
			p.mu.Unlock()
			runtime.Gosched()
			p.mu.Lock()
		}
		p.mu.Unlock()
	}
	until(func() bool {
		ready := p.pipes[0].state == up && p.pipes[1].state == up && !p.pipes[0].writing
		if ready {
			p.pipes[0].writing = true
		}
		return ready
	})
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, 20*time.Second)
	buf := []byte("end")
	m := &fabric.Msg{Peer: 1, Key: fabric.Key{Class: fabric.PointToPoint}, Buf: unsafe.Pointer(&buf[0]), Len: 3}
	m.Reset(w)
	s.f.Send(m)
	if err := s.f.Wait(m, w); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		s.f.Close(context.Background())
		close(over)
	}()
	until(func() bool { return p.err != nil })
	p.mu.Lock()
	p.pipes[0].writing = false
	p.mu.Unlock()
	p.pipes[0].write(portion)
	for _, want := range []kind{kindPush, kindGoodbye} {
		var b [headerBytes]byte
		if _, err := io.ReadFull(first, b[:]); err != nil {
			t.Fatal(err)
		}
		var h header
		if err := h.parse(&b); err != nil || h.kind != want {
			t.Errorf("frame of kind %d, %v; want %d", h.kind, err, want)
		}
	}
	first.Close()
	data.Close()
	<-over
}

// TestCancelStuckSend withdraws a message to a peer that has stopped reading: it
// costs the link, but the caller gets its buffer back.
func TestCancelStuckSend(t *testing.T) {
	s := newFakePeer(t, map[string]string{"window": "134217728", "connections": "1"})
	s.join(0)
	s.join(1)
	buf := make([]byte, 64<<20)
	m := &fabric.Msg{Peer: 1, Buf: unsafe.Pointer(&buf[0]), Len: len(buf)}
	m.Reset(nil)
	s.f.Send(m)
	s.f.Cancel(m)
	if !m.Done() || m.Err == nil {
		t.Errorf("done %v, error %v", m.Done(), m.Err)
	}
}

// FuzzFrames sends arbitrary bytes on an admitted connection while receives are
// posted: they must all end when the link does.
func FuzzFrames(f *testing.F) {
	f.Add(append(headerOf(header{kind: kindEager, payload: 3, length: 3}), "abc"...), uint8(0))
	f.Add(append(headerOf(header{kind: kindAsk, length: 10}), headerOf(header{kind: kindRetract})...), uint8(0))
	f.Add(append(headerOf(header{kind: kindPush, length: 10}), headerOf(header{kind: kindGoodbye})...), uint8(0))
	f.Add(headerOf(header{kind: kindChunk, payload: 5, length: 10}), uint8(1))
	f.Add(append(headerOf(header{kind: kindGrant}), headerOf(header{kind: kindDrop})...), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, index uint8) {
		s := newFakePeer(t, map[string]string{"connections": "1", "eager": "1000", "window": "5000"})
		first := s.join(0)
		conn := first
		if index%2 == 1 {
			first.Write(headerOf(header{kind: kindPush, length: 10}))
			conn = s.join(1)
		}
		var ms []*fabric.Msg
		post := func(peer int, n int, op func(*fabric.Msg)) {
			buf := make([]byte, n)
			m := &fabric.Msg{Peer: peer, Buf: unsafe.Pointer(&buf[0]), Len: n}
			m.Reset(nil)
			op(m)
			ms = append(ms, m)
		}
		post(1, 10, s.f.Recv)
		post(fabric.AnySource, 10, s.f.Recv)
		post(1, 100, s.f.Send)
		post(1, 100_000, s.f.Send)
		conn.Write(data)
		conn.Close()
		first.Close()
		var wg sync.WaitGroup
		for _, m := range ms {
			wg.Go(func() {
				if !transport.AwaitDone(m, 20*time.Second) {
					t.Errorf("a message of %d bytes still waits", m.Len)
				}
			})
		}
		wg.Wait()
	})
}

func addrs(l net.Listener) []netip.AddrPort {
	return []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}
}
