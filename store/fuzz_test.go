package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// FuzzStranger sends anything to a server that has a secret, and perhaps encrypts: no key appears, and nothing is heard
// but random bytes, TLS, and what the server wants.
func FuzzStranger(f *testing.F) {
	secret := secure.Secret{}.Derive("fuzz")
	tls, err := secure.SelfMade()
	if err != nil {
		f.Fatal(err)
	}
	for _, conversation := range conversations {
		for _, l := range conversation {
			f.Add([]byte(l.send), false)
		}
	}
	f.Add(append(append([]byte(nil), helloOf("rank 1")...), make([]byte, secure.HandshakeBytes)...), false)
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), true)
	f.Fuzz(func(t *testing.T, data []byte, encrypted bool) {
		policy := secure.Policy{Secret: secret, Plain: config.PlainNone}
		if encrypted {
			policy.TLS = tls
		}
		a, b := net.Pipe()
		l := &one{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conns <- b
		s, err := Serve(l, ServerOptions{Security: policy})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, a)
			heard <- n
		}()
		a.Write(data)
		a.Close()
		n := <-heard
		s.mu.Lock()
		conns := len(s.conns)
		s.mu.Unlock()
		if keys := s.table.numKeys(); keys != 0 || conns > 1 || n > 32 && !encrypted {
			t.Fatalf("%d keys, %d connections, %d bytes heard", keys, conns, n)
		}
		s.Close()
	})
}

// one is a listener with connections made by hand.
type one struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *one) Close() error   { close(l.closed); return nil }
func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

// FuzzAnswers has a client hear anything from its server: its calls end, and give no more than has come.
func FuzzAnswers(f *testing.F) {
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	f.Add([]byte{0}, true)
	f.Add(append(number(3), "abc"...), true)
	f.Add(append(number(1<<62), "abc"...), false)
	f.Add(append(number(2), append(append(number(1), 'x'), number(1<<40)...)...), false)
	f.Add([]byte{1, 2, 3, 0, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, data []byte, s0 bool) {
		d := DialectS1
		if s0 {
			d = DialectS0
		}
		for _, call := range []func(*TCPStore) (int, error){
			func(s *TCPStore) (int, error) { v, err := s.Get(t.Context(), "k"); return len(v), err },
			func(s *TCPStore) (int, error) { _, err := s.Add(t.Context(), "k", 1); return 0, err },
			func(s *TCPStore) (int, error) { _, err := s.Check(t.Context(), "k", "l"); return 0, err },
			func(s *TCPStore) (int, error) { return 0, s.Wait(t.Context(), "k", "l") },
			func(s *TCPStore) (int, error) { v, err := s.CompareSet(t.Context(), "k", nil, nil); return len(v), err },
			func(s *TCPStore) (n int, err error) {
				list, err := s.MultiGet(t.Context(), "k", "l")
				for _, v := range list {
					n += len(v)
				}
				return n, err
			},
			func(s *TCPStore) (n int, err error) {
				list, err := s.ListKeys(t.Context())
				for _, v := range list {
					n += len(v)
				}
				return n, err
			},
			func(s *TCPStore) (int, error) { v, err := s.QueuePop(t.Context(), "k"); return len(v), err },
			func(s *TCPStore) (int, error) { return 0, s.Barrier(t.Context(), "k", 2) },
		} {
			has := map[opcode]bool{} // every operation there is, without asking
			for _, p := range probes {
				has[p.op] = false
			}
			said := &script{Reader: bytes.NewReader(data)}
			s := &TCPStore{addr: "fuzz", opts: TCPOptions{Timeout: time.Second, Reconnect: time.Nanosecond}, dialect: d,
				busy: map[*clientConn]struct{}{}, lacks: has}
			s.opts.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			s.put(newClientConn(said, d, Limits{}))
			if n, err := call(s); err == nil && n > len(data) {
				t.Fatalf("%d bytes came of %d", n, len(data))
			}
			s.Close()
		}
	})
}

// script is a connection whose other end sends what is written, whatever it receives.
type script struct {
	*bytes.Reader
	net.Conn
}

func (s *script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
