package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

func TestProbe(t *testing.T) {
	for _, d := range []store.Dialect{store.DialectS0, store.DialectS1} {
		s := server(t, store.ServerOptions{Dialect: d})
		for _, asked := range []store.Dialect{store.DialectProbe, store.DialectDefault} {
			c := dial(t, s.Addr().String(), store.TCPOptions{Dialect: asked})
			if c.Dialect() != d {
				t.Errorf("a server of %v was found to speak %v", d, c.Dialect())
			}
			if err := c.Set(t.Context(), "k", nil); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBadAddress(t *testing.T) {
	for _, addr := range []string{"", "host", "host:", "host:0", "host:http", "host:70000", "a:b:c"} {
		if c, err := store.DialTCP(t.Context(), addr, store.TCPOptions{}); err == nil {
			c.Close()
			t.Errorf("%q was accepted", addr)
		}
	}
	if s, err := store.ListenTCP("192.0.2.1:0", store.ServerOptions{}); err == nil {
		s.Close()
		t.Error("served at somebody else's address")
	}
	if s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{Dialect: store.DialectProbe}); err == nil {
		s.Close()
		t.Error("a server can't probe")
	}
}

// A client may come before its server.
func TestDialBeforeListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = store.DialTCP(short, addr, store.TCPOptions{})
	refused, ok := errors.AsType[*store.DialError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || refused.Attempts < 2 {
		t.Errorf("nobody there: %v", err)
	}

	var attempts atomic.Int32
	first := make(chan struct{})
	dialed := make(chan error, 1)
	go func() {
		c, err := store.DialTCP(t.Context(), addr,
			store.TCPOptions{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if attempts.Add(1) == 1 {
					close(first)
				}
				return c, err
			}})
		if err == nil {
			c.Close()
		}
		dialed <- err
	}()
	<-first
	s, err := store.ListenTCP(addr, store.ServerOptions{})
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	defer s.Close()
	if err := <-dialed; err != nil {
		t.Fatal(err)
	}
}

// A server that accepts and says nothing does not block a client for ever.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, d := range []store.Dialect{store.DialectS1, store.DialectProbe} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := store.DialTCP(ctx, l.Addr().String(), store.TCPOptions{Dialect: d}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("%v: %v", d, err)
		}
	}
	c := dial(t, l.Addr().String(), store.TCPOptions{Dialect: store.DialectS0})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Set(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A restarted server is found again; while there is none, calls fail soon.
func TestReconnect(t *testing.T) {
	first := server(t, store.ServerOptions{})
	addr := first.Addr().String()
	c := dial(t, addr, store.TCPOptions{Reconnect: 100 * time.Millisecond})
	if err := c.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- c.Wait(t.Context(), "never") }()
	first.Close()
	if err := <-waiting; err == nil {
		t.Error("a wait outlived its server")
	}
	if err := c.Set(t.Context(), "k", nil); err == nil {
		t.Error("set worked without a server")
	} else if _, ok := errors.AsType[*store.DialError](err); !ok {
		t.Errorf("got %v", err)
	}
	second, err := store.ListenTCP(addr, store.ServerOptions{})
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	defer second.Close()
	if n, err := c.Add(t.Context(), "k", 7); n != 7 || err != nil {
		t.Errorf("after the restart: %d, %v", n, err)
	}
}

// A change whose answer is lost is not made twice.
func TestUncertain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var requests atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := io.ReadFull(c, make([]byte, 1+8+2+8)); err == nil {
				requests.Add(1)
			}
			c.Close()
		}
	}()
	c := dial(t, l.Addr().String(), store.TCPOptions{Dialect: store.DialectS0})
	_, err = c.Add(t.Context(), "k", 1)
	broken, ok := errors.AsType[*store.ConnError](err)
	if !ok || !broken.Uncertain || requests.Load() != 1 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
	if _, err := c.Add(t.Context(), "k", 0); err == nil || requests.Load() != 4 {
		t.Errorf("what may be repeated was asked %d times, %v", requests.Load()-1, err)
	}
}

func TestClientLimits(t *testing.T) {
	s := server(t, store.ServerOptions{})
	c := dial(t, s.Addr().String(), store.TCPOptions{Limits: store.Limits{Key: 10, Value: 20, Keys: 3}})
	for name, err := range map[string]error{
		"key":   c.Set(t.Context(), strings.Repeat("k", 10), nil), // the slash counts
		"value": c.Set(t.Context(), "k", make([]byte, 21)),
		"keys":  c.Wait(t.Context(), "a", "b", "c", "d"),
	} {
		if err == nil || !strings.Contains(err.Error(), "exceed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Set(t.Context(), "123456789", make([]byte, 20)); err != nil {
		t.Error(err)
	}
	// A server accepts larger values than PyTorch's, and returns them to clients that couldn't send as much. A value
	// beyond its limit ends the connection, and the error says so.
	big := dial(t, s.Addr().String(), store.TCPOptions{Limits: store.Limits{Value: 1 << 30}})
	if err := big.Set(t.Context(), "k", make([]byte, 9<<20)); err != nil {
		t.Error(err)
	}
	usual := dial(t, s.Addr().String(), store.TCPOptions{})
	if v, err := usual.Get(t.Context(), "k"); len(v) != 9<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if err := usual.Set(t.Context(), "k", make([]byte, 9<<20)); err == nil {
		t.Error("a client sends what PyTorch's server doesn't take")
	}
	told := make(chan error, 9)
	narrow := server(t, store.ServerOptions{Limits: store.Limits{Value: 1 << 20},
		OnRefused: func(err error) { told <- err }})
	tooBig := dial(t, narrow.Addr().String(), store.TCPOptions{})
	if err := tooBig.Set(t.Context(), "k", make([]byte, 2<<20)); err == nil {
		t.Error("the server took a value beyond its limit")
	}
	narrow.Close()
	const want = "was refused: set: value length of 2097152 exceeds the limit of 1048576"
	if len(told) != 1 {
		t.Fatalf("told %d times", len(told))
	}
	if err := <-told; !strings.Contains(err.Error(), want) {
		t.Errorf("told: %v", err)
	}
}

func TestWaitForWorkers(t *testing.T) {
	for _, d := range []store.Dialect{store.DialectS0, store.DialectS1} {
		s := server(t, store.ServerOptions{})
		addr := s.Addr().String()
		var err error
		for wait := 100 * time.Millisecond; ; wait *= 4 { // until it's long enough for the client to be counted
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err = store.DialTCP(ctx, addr, store.TCPOptions{Dialect: d, WorldSize: 3, WaitForWorkers: true})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), " of 3 clients") {
				break
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v", d, err)
		}
		done := make(chan error, 2)
		for range 2 {
			go func() {
				c, err := store.DialTCP(t.Context(), addr, store.TCPOptions{Dialect: d, WorldSize: 3, WaitForWorkers: true})
				if err == nil {
					c.Close()
				}
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestDrain(t *testing.T) {
	s := server(t, store.ServerOptions{})
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	c := dial(t, s.Addr().String(), store.TCPOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 client") {
		t.Error(err)
	}
	c.Close()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestManyWaiters has a thousand clients wait for one key.
func TestManyWaiters(t *testing.T) {
	const n = 1000
	s := server(t, store.ServerOptions{})
	addr := s.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ready, woken sync.WaitGroup
	ready.Add(n)
	for range n {
		woken.Go(func() {
			c, err := store.DialTCP(ctx, addr, store.TCPOptions{WorldSize: n})
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if v, err := c.Get(ctx, "go"); err != nil || string(v) != "now" {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	ready.Wait()
	begin := time.Now()
	if err := s.Local().Set(ctx, "go", []byte("now")); err != nil {
		t.Fatal(err)
	}
	woken.Wait()
	t.Logf("%d clients woken in %v", n, time.Since(begin).Round(time.Millisecond))
}

// A client that does not read what it asked for blocks only itself.
func TestSlowClient(t *testing.T) {
	s := server(t, store.ServerOptions{})
	if err := s.Local().Set(t.Context(), "big", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	slow, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	get := "\x02\x04\x00\x00\x00\x00\x00\x00\x00/big"
	wait := "\x05\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00/soon"
	if _, err := io.WriteString(slow, wait+strings.Repeat(get, 64)); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.Addr().String(), store.TCPOptions{})
	for i := range 10 {
		if err := c.Set(t.Context(), "soon", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	c := dial(b, server(b, store.ServerOptions{}).Addr().String(), store.TCPOptions{})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Set(b.Context(), "key", []byte("value")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	c := dial(b, server(b, store.ServerOptions{}).Addr().String(), store.TCPOptions{})
	if err := c.Set(b.Context(), "key", []byte("value")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(b.Context(), "key"); err != nil {
			b.Fatal(err)
		}
	}
}
