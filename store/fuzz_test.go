package store

import (
	"io"
	"net"
	"testing"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// FuzzStranger sends anything to a server that has a secret, and perhaps encrypts: no key appears, and nothing is heard but random
// bytes and TLS.
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
	f.Add(append(append([]byte(nil), authHello...), make([]byte, secure.HandshakeBytes)...), false)
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
