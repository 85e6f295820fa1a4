package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/wire"
)

func TestMain(m *testing.M) {
	const publisher = "github.com/go-zeromq/zmq4.(*pubMWriter).run" // forgotten if its socket closes at a bad moment
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(publisher))
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echo is a REP that says what it hears.
func echo(t testing.TB, o Options) string {
	t.Helper()
	r, err := ListenRep("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(func(b []byte) []byte { return b })
	t.Cleanup(func() { r.Close() })
	return r.Addr().String()
}

func TestReqRep(t *testing.T) {
	addr := echo(t, Options{MaxMessage: 8 << 20})
	req, err := DialReq(within(t), addr, Options{MaxMessage: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer req.Close()
	for _, n := range []int{0, 1, 255, 256, wire.FirstRead, wire.FirstRead + 1, 5 << 20} {
		q := bytes.Repeat([]byte{7}, n)
		if a, err := req.Do(q, 10*time.Second); err != nil || !bytes.Equal(a, q) {
			t.Fatalf("%d bytes: %d, %v", n, len(a), err)
		}
	}
	// Another implementation asks, and is asked.
	theirs := zmq4.NewReq(t.Context())
	defer theirs.Close()
	if err := theirs.Dial("tcp://" + addr); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Send(zmq4.NewMsgString("hello")); err != nil {
		t.Fatal(err)
	}
	if m, err := theirs.Recv(); err != nil || string(m.Bytes()) != "hello" {
		t.Errorf("%v, %v", m, err)
	}
	server := zmq4.NewRep(t.Context())
	defer server.Close()
	if err := server.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() {
		m, _ := server.Recv()
		server.Send(m)
	}()
	ours, err := DialReq(within(t), server.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if a, err := ours.Do([]byte("hello"), 10*time.Second); err != nil || string(a) != "hello" {
		t.Errorf("%q, %v", a, err)
	}
}

func TestPubSub(t *testing.T) {
	p, err := ListenPub("127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	addr := p.Addr().String()
	a, all := NewSub(Options{}, "a"), NewSub(Options{}, "")
	theirs := zmq4.NewSub(t.Context())
	defer theirs.Close()
	for _, s := range []*Sub{a, all} {
		defer s.Close()
		if err := s.Dial(within(t), addr); err != nil {
			t.Fatal(err)
		}
	}
	theirs.SetOption(zmq4.OptionSubscribe, "ab")
	if err := theirs.Dial("tcp://" + addr); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"a", "", "ab"} {
		testutil.Eventually(t, func() bool { return p.Subscribed(topic) }, "a peer subscribes to %q", topic)
	}
	for _, topic := range []string{"b", "abc", "a"} {
		if err := p.Send([]byte(topic), []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *Sub, topics ...string) {
		t.Helper()
		for _, topic := range topics {
			m, err := s.Recv()
			if err != nil || len(m) != 3 || string(m[0]) != topic || string(m[1]) != "x" || len(m[2]) != 0 {
				t.Fatalf("%q, %v, want %s", m, err, topic)
			}
		}
	}
	want(all, "b", "abc", "a")
	want(a, "abc", "a")
	if m, err := theirs.Recv(); err != nil || string(m.Frames[0]) != "abc" {
		t.Errorf("%v, %v", m, err)
	}
	p.Close()
	if m, err := a.Recv(); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("after the publisher's end: %q, %v", m, err)
	}

	other := zmq4.NewPub(t.Context())
	defer other.Close()
	if err := other.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := a.Dial(within(t), other.Addr().String()); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() bool { return len(other.(zmq4.Topics).Topics()) > 0 }, "a peer subscribes")
	if err := other.SendMulti(zmq4.NewMsgFrom([]byte("a"), []byte("x"), nil)); err != nil {
		t.Fatal(err)
	}
	want(a, "a")
}

// TestDialWaits connects to a socket that comes later, and gives up when the time is over.
func TestDialWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := DialReq(ctx, addr, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody comes: %v", err)
	}
	came := make(chan error, 1)
	go func() {
		r, err := DialReq(within(t), addr, Options{})
		if err == nil {
			r.Close()
		}
		came <- err
	}()
	time.Sleep(30 * time.Millisecond)
	r, err := ListenRep(addr, Options{})
	if err != nil {
		t.Skip(err) // another process has the port now
	}
	defer r.Close()
	if err := <-came; err != nil {
		t.Error(err)
	}
}

// raw is a connection by hand, after its greetings if it's to be of a kind.
func raw(t testing.TB, addr, kind string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if kind != "" {
		theirs := make([]byte, len(greeting(rep)))
		if _, err := c.Write(greeting(kind)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, theirs); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// announced is the beginning of a frame of so many bytes.
func announced(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flagLong}, n) }

// TestHostile has one connection after the other break the rules: each is closed, others are served all the while, and
// memory doesn't grow.
func TestHostile(t *testing.T) {
	o := Options{MaxMessage: 1 << 30}
	addr := echo(t, o)
	p, err := ListenPub("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	good, err := DialReq(within(t), addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for what, c := range map[string]struct {
		addr, kind string
		says       []byte
	}{
		"no ZeroMQ":            {addr, "", bytes.Repeat([]byte("GET / HTTP/1.1\r\n\r\n"), 4)},
		"another version":      {addr, "", append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1}, make([]byte, 53)...)},
		"another kind":         {addr, sub, nil},
		"a message for READY":  {addr, "", append(greeting(req)[:greetingSize], 0, 1, 'x')},
		"half a property":      {addr, "", append(greeting(req)[:greetingSize], encodeCommand("READY", []byte{200, 'x'})...)},
		"a long READY":         {addr, "", append(greeting(req)[:greetingSize], announced(1<<40)...)},
		"no delimiter":         {addr, req, []byte{0, 1, 'x'}},
		"nothing":              {addr, req, []byte{0, 0}},
		"2^62 bytes":           {addr, req, append([]byte{flagMore, 0}, announced(1<<62)...)},
		"2^64-1 bytes":         {addr, req, append([]byte{flagMore, 0}, announced(1<<64-1)...)},
		"2^38 bytes":           {addr, req, append([]byte{flagMore, 0}, announced(1<<38)...)},
		"many frames":          {addr, req, bytes.Repeat([]byte{flagMore, 0}, maxFrames+1)},
		"an unknown flag":      {addr, req, []byte{0x80, 0}},
		"a command in parts":   {addr, req, []byte{flagCommand | flagMore, 0}},
		"an empty command":     {addr, req, []byte{flagCommand, 0}},
		"no subscription":      {p.Addr().String(), sub, []byte{0, 1, 'x'}},
		"an empty one":         {p.Addr().String(), sub, []byte{0, 0}},
		"many subscriptions":   {p.Addr().String(), sub, manySubscriptions()},
		"a long subscription":  {p.Addr().String(), sub, append(announced(300), bytes.Repeat([]byte{1}, 300)...)},
		"2^38 bytes of one":    {p.Addr().String(), sub, announced(1 << 38)},
		"a question to no one": {p.Addr().String(), req, nil},
	} {
		bad := raw(t, c.addr, "")
		if c.kind != "" {
			bad.Write(greeting(c.kind))
		}
		bad.Write(c.says)
		if n, err := io.Copy(io.Discard, bad); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: is not turned away, after %d bytes", what, n)
		}
		if a, err := good.Do([]byte(what), 10*time.Second); err != nil || string(a) != what {
			t.Fatalf("after %s: %q, %v", what, a, err)
		}
	}
	// A permitted size that is announced takes no memory before the bytes come.
	for range 50 {
		raw(t, addr, req).Write(append([]byte{flagMore, 0}, announced(1<<29)...))
	}
	if a, err := good.Do([]byte("still"), 10*time.Second); err != nil || string(a) != "still" {
		t.Errorf("%q, %v", a, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("memory has grown by %d bytes", grown)
	}
}

func manySubscriptions() (out []byte) {
	for i := range maxTopics + 1 {
		topic := fmt.Sprint(i)
		out = append(append(out, 0, byte(1+len(topic)), 1), topic...)
	}
	return out
}

// TestSilence has connections that say nothing, and others that read nothing, beside one that is served; and sockets
// that close in spite of them.
func TestSilence(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 16<<20)
	r, err := ListenRep("127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ListenPub("127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(func(q []byte) []byte {
		if string(q) == "big" {
			return big
		}
		return q
	})
	for _, addr := range []string{r.Addr().String(), p.Addr().String()} {
		for range 20 {
			raw(t, addr, "")
		}
		raw(t, addr, "").Write(greeting(req)[:30])
	}
	for range 3 {
		raw(t, r.Addr().String(), req).Write([]byte{flagMore, 0, 0, 3, 'b', 'i', 'g'})
		raw(t, p.Addr().String(), sub).Write([]byte{0, 1, 1})
	}
	testutil.Eventually(t, func() bool { return p.subscribed() >= 3 }, "three peers subscribe")
	good, err := DialReq(within(t), r.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	listener := NewSub(Options{MaxMessage: 32 << 20}, "")
	defer listener.Close()
	if err := listener.Dial(within(t), p.Addr().String()); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() bool { return p.subscribed() >= 4 }, "the fourth peer subscribes")
	for range 3 {
		if a, err := good.Do([]byte("x"), 10*time.Second); err != nil || string(a) != "x" {
			t.Fatalf("%q, %v", a, err)
		}
		if err := p.Send([]byte("t"), big); err != nil { // more than a connection's buffers hold
			t.Fatal(err)
		}
		if m, err := listener.Recv(); err != nil || len(m) != 2 {
			t.Fatal(err)
		}
	}
	began := time.Now()
	r.Close()
	p.Close()
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("closing took %v", d)
	}
}

// subscribed is how many there are that have a subscription.
func (p *Pub) subscribed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		if len(s.topics) > 0 {
			n++
		}
	}
	return n
}

// TestAdmit turns others away before they're heard.
func TestAdmit(t *testing.T) {
	var mu sync.Mutex
	var said []string
	no := errors.New("not you")
	addr := echo(t, Options{Admit: func(net.Conn) error { return no }, Log: func(err error) {
		mu.Lock()
		said = append(said, err.Error())
		mu.Unlock()
	}})
	if n, err := raw(t, addr, "").Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	mu.Lock()
	if text := strings.Join(said, "\n"); !strings.Contains(text, "not you") {
		t.Errorf("the log says %q", text)
	}
	mu.Unlock()
	_, err := DialReq(within(t), echo(t, Options{}), Options{Admit: func(net.Conn) error { return no }})
	if !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
}

// impostor is a listener that sends something to every client, and keeps the connection.
func impostor(t testing.TB, says []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			c.Write(says)
		}
	}()
	return l.Addr().String()
}

// TestHostileServers are servers that break the rules: their clients get an error.
func TestHostileServers(t *testing.T) {
	for what, says := range map[string][]byte{
		"no ZeroMQ":    bytes.Repeat([]byte("220 smtp ready\r\n"), 8),
		"another kind": greeting(pub),
		"a long READY": append(greeting(rep)[:greetingSize], announced(1<<40)...),
		"an error":     append(greeting(rep)[:greetingSize], encodeCommand("ERROR", []byte("\x03bad"))...),
	} {
		if _, err := DialReq(within(t), impostor(t, says), Options{}); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, says := range map[string][]byte{
		"2^62 bytes": append([]byte{flagMore, 0}, announced(1<<62)...), "no delimiter": {0, 1, 'x'},
		"too much": append([]byte{flagMore, 0}, announced(1<<20+1)...), "nothing": nil,
	} {
		r, err := DialReq(within(t), impostor(t, append(greeting(rep), says...)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := r.Do([]byte("x"), 100*time.Millisecond); err == nil {
			t.Errorf("%s: the answer is %q", what, a)
		}
		r.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := DialReq(ctx, impostor(t, nil), Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	s := NewSub(Options{})
	defer s.Close()
	if err := s.Dial(within(t), impostor(t, append(greeting(pub), announced(1<<62)...))); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err == nil {
		t.Errorf("%q", m)
	}
}

// FuzzPeers has any bytes come from the peers of listening sockets, behind their greetings and in place of them.
func FuzzPeers(f *testing.F) {
	f.Add(true, []byte{flagMore, 0, 0, 1, 'x'})
	f.Add(true, announced(1<<38))
	f.Add(true, []byte{0, 2, 1, 't'})
	f.Add(true, encodeCommand("PING", []byte("\x00\x01abc")))
	f.Add(true, encodeCommand("SUBSCRIBE", []byte("t")))
	f.Add(false, greeting(req))
	f.Add(false, greeting(sub))
	r, err := ListenRep("127.0.0.1:0", Options{})
	if err != nil {
		f.Fatal(err)
	}
	go r.Serve(func(b []byte) []byte { return b })
	p, err := ListenPub("127.0.0.1:0", Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { r.Close(); p.Close() })
	f.Fuzz(func(t *testing.T, greets bool, b []byte) {
		for kind, serve := range map[string]func(*conn) error{req: r.converse, sub: p.subscribe} {
			ours, theirs := net.Pipe()
			go io.Copy(io.Discard, theirs)
			go func() {
				if greets {
					theirs.Write(greeting(kind))
				}
				theirs.Write(b)
				theirs.Close()
			}()
			if c, err := greet(ours, partners[kind][0], Options{}); err == nil {
				serve(c)
			}
			ours.Close()
		}
	})
}

// FuzzServers has any bytes come from the servers of sockets that connect.
func FuzzServers(f *testing.F) {
	f.Add(false, greeting(rep))
	f.Add(true, []byte{flagMore, 0, 0, 1, 'x'})
	f.Add(true, announced(1<<62))
	f.Fuzz(func(t *testing.T, greets bool, b []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() {
			if greets {
				theirs.Write(greeting(rep))
			}
			theirs.Write(b)
			theirs.Close()
		}()
		if c, err := greet(ours, req, Options{}); err == nil {
			(&Req{c}).Do([]byte("x"), time.Second)
		}
		ours.Close()
		for in := bufio.NewReader(bytes.NewReader(b)); ; {
			m, err := readMessage(in, 1<<20)
			if err != nil {
				break
			}
			again := encode(m.frames...)
			if m.command {
				continue
			}
			var text []byte
			for _, x := range again {
				text = append(text, x...)
			}
			back, err := readMessage(bufio.NewReader(bytes.NewReader(text)), 1<<20)
			if err != nil || len(back.frames) != len(m.frames) {
				t.Fatalf("%q becomes %q: %v", m.frames, back.frames, err)
			}
		}
	})
}
