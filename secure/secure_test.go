package secure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fresh(t testing.TB) Secret {
	t.Helper()
	s, err := Parse(Generate())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	text := Generate()
	a, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Parse("\n " + text + "\n"); err != nil || b != a {
		t.Errorf("white space makes another secret: %v", err)
	}
	if b := fresh(t); b == a || b.IsZero() {
		t.Error("a second secret is the same as the first, or none")
	}
	for _, short := range []string{"", " ", "fifteen letters", "   fifteen letters   "} {
		if s, err := Parse(short); err == nil || !s.IsZero() {
			t.Errorf("%q was taken for a secret", short)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if _, err := ReadFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
	for text, good := range map[string]bool{Generate() + "\n": true, "short": false, strings.Repeat("long",
		maxText): false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadFile(path)
		if s.IsZero() == good || good != (err == nil) {
			t.Errorf("%d bytes: %v, %v", len(text), s, err)
		}
		if err != nil && (!strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "short")) {
			t.Errorf("the error doesn't name the file, or shows what is in it: %v", err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if _, err := ReadFile("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero: it's a device") {
		t.Errorf("a file without an end: %v", err)
	}
	if _, err := FromFiles("/dev/zero", "/dev/zero", "/dev/zero"); err == nil ||
		!strings.Contains(err.Error(), "certificate /dev/zero: it's a device") {
		t.Errorf("certificates without an end: %v", err)
	}
}

// TestNotShown prints a secret in every way that programs do by accident.
func TestNotShown(t *testing.T) {
	text := Generate()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Secret: s}
	asJSON, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Trim(fmt.Sprint(s.key), "[]")
	for _, shown := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p), string(asJSON),
		s.String()} {
		for _, bad := range []string{text, key, fmt.Sprintf("%x", s.key)} {
			if strings.Contains(shown, bad) {
				t.Errorf("%s shows the secret", shown)
			}
		}
	}
}

// TestDerive takes care that no two purposes have the same secret.
func TestDerive(t *testing.T) {
	s := fresh(t)
	seen := map[Secret]string{s: "itself", {}: "none"}
	for name, d := range map[string]Secret{
		"a": s.Derive("a"), "b": s.Derive("b"), "a, empty": s.Derive("a", nil), "a b": s.Derive("a", []byte("b")),
		"ab": s.Derive("ab"), "a b c": s.Derive("a", []byte("b"), []byte("c")), "a bc": s.Derive("a", []byte("bc")),
		"of none": Secret{}.Derive("a"), "of another": fresh(t).Derive("a"),
	} {
		if other, dup := seen[d]; dup {
			t.Errorf("%s has the secret of %s", name, other)
		}
		seen[d] = name
	}
	if again := s.Derive("a", []byte("b")); again != s.Derive("a", []byte("b")) {
		t.Error("the same purpose has two secrets")
	}
}

// meet runs Initiate and Respond against each other over a pipe.
func meet(a, b Secret, helloA, helloB string) (ea, eb error) {
	ca, cb := net.Pipe()
	return meetOn(ca, cb, a, b, helloA, helloB)
}

func meetOn(ca, cb net.Conn, a, b Secret, helloA, helloB string) (ea, eb error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ca.Close()
		ea = a.Initiate(ca, []byte(helloA))
	}()
	heard := make([]byte, len(helloA))
	if _, eb = io.ReadFull(cb, heard); eb == nil {
		eb = b.Respond(cb, []byte(helloB))
	}
	cb.Close()
	<-done
	return ea, eb
}

func TestHandshake(t *testing.T) {
	s := fresh(t)
	for _, c := range []struct {
		name           string
		a, b           Secret
		helloA, helloB string
		good           bool
	}{
		{"same", s, s, "hello", "hello", true},
		{"no hello", s, s, "", "", true},
		{"derived of none", Secret{}.Derive("t", []byte("token")), Secret{}.Derive("t", []byte("token")), "x", "x", true},
		{"another secret", s, fresh(t), "hello", "hello", false},
		{"another hello", s, s, "hello", "hallo", false},
		{"derived", s, s.Derive("x"), "hello", "hello", false},
		{"none", Secret{}, s, "hello", "hello", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ea, eb := meet(c.a, c.b, c.helloA, c.helloB)
			if c.good && (ea != nil || eb != nil) {
				t.Errorf("initiator: %v; responder: %v", ea, eb)
			}
			if !c.good && (!errors.Is(ea, ErrRefused) || !errors.Is(eb, ErrRefused)) {
				t.Errorf("want a refusal; initiator: %v; responder: %v", ea, eb)
			}
		})
	}
}

// tape is a connection that records what is read and plays what it's given.
type tape struct {
	io.Reader
	wrote bytes.Buffer
}

func (p *tape) Write(b []byte) (int, error) { return p.wrote.Write(b) }

// record runs a good handshake and returns what the initiator and the responder sent.
func record(t testing.TB, s Secret) (initiator, responder []byte) {
	t.Helper()
	ca, cb := net.Pipe()
	var heardI, heardR bytes.Buffer
	done := make(chan error)
	go func() { done <- s.Initiate(both{io.TeeReader(ca, &heardI), ca}, nil) }()
	if err := s.Respond(both{io.TeeReader(cb, &heardR), cb}, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return heardR.Bytes(), heardI.Bytes()
}

type both struct {
	io.Reader
	io.Writer
}

// TestReplay plays what either side has sent before.
func TestReplay(t *testing.T) {
	s := fresh(t)
	i, r := record(t, s)
	if len(i) != HandshakeBytes || len(r) != HandshakeBytes {
		t.Fatalf("the sides sent %d and %d bytes", len(i), len(r))
	}
	p := &tape{Reader: bytes.NewReader(i)}
	if err := s.Respond(p, nil); !errors.Is(err, ErrRefused) || p.wrote.Len() != nonceBytes {
		t.Errorf("the initiator's part again: %v, after %d bytes", err, p.wrote.Len())
	}
	p = &tape{Reader: bytes.NewReader(r)}
	if err := s.Initiate(p, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("the responder's part again: %v", err)
	}
}

// mirror sends back whatever it gets.
type mirror struct{ bytes.Buffer }

func TestReflection(t *testing.T) {
	s := fresh(t)
	if err := s.Initiate(&mirror{}, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("its own words pass for an answer: %v", err)
	}
	// A responder that is given its own random bytes and its own proof of another connection.
	_, r := record(t, s)
	if err := s.Respond(&tape{Reader: bytes.NewReader(r)}, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("a responder's part passes for an initiator's: %v", err)
	}
}

// TestSilence ends a handshake at every byte: the responder has said nothing but random bytes.
func TestSilence(t *testing.T) {
	s := fresh(t)
	i, r := record(t, s)
	for n := range HandshakeBytes {
		p := &tape{Reader: bytes.NewReader(i[:n])}
		if err := s.Respond(p, nil); err == nil || p.wrote.Len() > nonceBytes {
			t.Fatalf("after %d bytes: %v; it sent %d bytes", n, err, p.wrote.Len())
		}
		if err := s.Initiate(&tape{Reader: bytes.NewReader(r[:n])}, nil); err == nil {
			t.Fatalf("an answer of %d bytes was enough", n)
		}
	}
}

func TestDecline(t *testing.T) {
	s := fresh(t)
	for _, why := range []error{ErrNoSecret, ErrWantsTLS} {
		p := &tape{}
		if err := Decline(p, why); err != nil {
			t.Fatal(err)
		}
		if err := s.Initiate(both{bytes.NewReader(p.wrote.Bytes()), io.Discard}, nil); !errors.Is(err, why) || !Foreign(err) {
			t.Errorf("%v, want %v", err, why)
		}
	}
}

func TestSeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Secret{}.Derive("test", rapid.SliceOf(rapid.Byte()).Draw(t, "secret"))
		name, value := rapid.String().Draw(t, "name"), rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		sealed := s.Seal(name, value)
		if len(sealed) != len(value)+SealBytes {
			t.Fatalf("%d bytes", len(sealed))
		}
		if got, err := s.Open(name, sealed); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("got %x, %v", got, err)
		}
		if _, err := (Secret{}).Open(name, sealed); !errors.Is(err, ErrSealed) {
			t.Errorf("without a secret: %v", err)
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "at")
		forged := bytes.Clone(sealed)
		forged[i] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
		for what, err := range map[string]error{
			"flipped":        second(s.Open(name, forged)),
			"other name":     second(s.Open(name+"x", sealed)),
			"other secret":   second(s.Derive("x").Open(name, sealed)),
			"not sealed":     second(s.Open(name, value)),
			"cut":            second(s.Open(name, sealed[:i])),
			"something more": second(s.Open(name, append(forged, 0))),
		} {
			if !errors.Is(err, ErrSeal) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	if got, err := (Secret{}).Open("k", []byte("plain")); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestAcceptLimiter fills a limiter and fails many times.
func TestAcceptLimiter(t *testing.T) {
	var g AcceptLimiter
	g.Wait(t.Context()) // not before anything has failed
	var pending []*PendingConn
	conns := make([]*counted, maxPending+3)
	for i := range conns {
		conns[i] = &counted{}
		pending = append(pending, g.Add(conns[i]))
	}
	for i, c := range conns {
		if want := i < 3; (c.closed > 0) != want {
			t.Errorf("connection %d closed: %v", i, !want)
		}
	}
	if pending[0].Done(true) {
		t.Error("Done of a closed connection reports true")
	}
	for _, v := range pending[3:] {
		if !v.Done(true) || v.Done(false) {
			t.Error("Done must report true once")
		}
	}
	if g.pending != 0 || g.oldest != nil || g.newest != nil {
		t.Errorf("%d pending are left", g.pending)
	}
	g = AcceptLimiter{}
	start := time.Now()
	for range 100 {
		g.Add(&counted{}).Done(false)
	}
	if debt := g.busyUntil.Sub(start); debt < 100*connCost {
		t.Errorf("100 failures cost %v", debt)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Wait(ctx) // doesn't
}

// TestAcceptLimiterOfMany has more connections come at once than may be unauthenticated. All authenticate, so none is
// delayed.
func TestAcceptLimiterOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g AcceptLimiter
		begun := time.Now()
		coming := make(chan *PendingConn)
		go func() {
			for v := range coming {
				v.Done(true)
			}
		}()
		for range 10_000 {
			g.Wait(t.Context())
			coming <- g.Add(&counted{})
		}
		close(coming)
		if d := time.Since(begun); d > 0 {
			t.Errorf("it takes %v", d)
		}
		var unproved []*PendingConn
		for time.Since(begun) < time.Second {
			g.Wait(t.Context())
			unproved = append(unproved, g.Add(&counted{}))
		}
		if n := len(unproved); n < int(time.Second/connCost) || n > int((time.Second+2*burst)/connCost) {
			t.Errorf("%d unauthenticated connections in a second", n)
		}
		for _, v := range unproved {
			v.Done(false)
		}
	})
}

// TestStrangers has more connect to a public listener than may be there: each is served, and the first is closed for
// the last.
func TestStrangers(t *testing.T) {
	inner := &endless{}
	l := LimitListener(inner).(*limitListener)
	conns := make([]net.Conn, maxPending+1)
	for i := range conns {
		l.limiter.busyUntil = time.Time{} // or it would take seconds
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	if c := inner.conns[0]; c.closed != 1 {
		t.Errorf("the first was closed %d times", c.closed)
	}
	conns[1].Close()
	if c := inner.conns[1]; c.closed != 1 || l.limiter.pending != maxPending-1 {
		t.Errorf("closed %d times; %d pending", c.closed, l.limiter.pending)
	}
	l.limiter.busyUntil = time.Now().Add(time.Hour)
	waits := make(chan error)
	go func() { _, err := l.Accept(); waits <- err }()
	l.Close()
	if err := <-waits; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

// endless is a listener that always has another connection.
type endless struct {
	net.Listener
	closed atomic.Bool
	conns  []*caller
}

func (l *endless) Accept() (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	c := &caller{}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *endless) Close() error { l.closed.Store(true); return nil }

type caller struct {
	net.Conn
	counted
}

func (c *caller) Close() error { return c.counted.Close() }

type counted struct{ closed int }

func (c *counted) Close() error { c.closed++; return nil }

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	text := Generate()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hidden := config.Hidden(text)
	for _, c := range []struct {
		name string
		cfg  config.Config
		want string // part of the error
	}{
		{"nothing", config.Config{}, ""},
		{"text", config.Config{Secret: hidden}, ""},
		{"file", config.Config{SecretFile: path}, ""},
		{"both", config.Config{Secret: hidden, SecretFile: path}, "both"},
		{"short", config.Config{Secret: "short"}, "CHORUS_SECRET: "},
		{"no file", config.Config{SecretFile: path + "x"}, "CHORUS_SECRET_FILE: "},
		{"TLS", config.Config{Secret: hidden, TLS: true}, ""},
		{"half of the files", config.Config{TLSCert: path}, "three files"},
		{"no certificate", config.Config{TLSCert: path, TLSKey: path, TLSCA: path}, "CHORUS_TLS_CERT"},
	} {
		p, err := Load(&c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (p.Secret.IsZero() != (c.name == "nothing") || (p.TLS != nil) != c.cfg.TLS) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error shows the secret", c.name)
		}
	}
}

func TestCheck(t *testing.T) {
	tls, err := SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	s := fresh(t)
	for _, c := range []struct {
		policy Policy
		host   string
		good   bool
	}{
		{Policy{}, "127.0.0.1", true}, {Policy{}, "127.8.8.8", true}, {Policy{}, "::1", true}, {Policy{}, "localhost", true},
		{Policy{}, "::ffff:127.0.0.1", true},
		{Policy{}, "", false}, {Policy{}, "0.0.0.0", false}, {Policy{}, "::", false}, {Policy{}, "node0", false},
		{Policy{}, "10.0.0.1", false},
		{Policy{Secret: s}, "", true}, {Policy{Insecure: true}, "node0", true},
		{Policy{TLS: tls}, "node0", false}, {Policy{TLS: tls}, "127.0.0.1", false}, {Policy{TLS: tls, Secret: s}, "node0",
			true},
	} {
		err := c.policy.Check(c.host)
		if (err == nil) != c.good {
			t.Errorf("%+v at %q: %v", c.policy, c.host, err)
		}
		if err != nil && !strings.Contains(err.Error(), "CHORUS_SECRET_FILE") {
			t.Errorf("%q doesn't say what to do", err)
		}
	}
}

// FuzzRespond sends any bytes without the secret: they never authenticate, and the answer is random
// bytes at most.
func FuzzRespond(f *testing.F) {
	s := Secret{}.Derive("fuzz")
	i, _ := record(f, s)
	f.Add(i)
	f.Add(make([]byte, HandshakeBytes))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &tape{Reader: bytes.NewReader(b)}
		if err := s.Respond(p, nil); err == nil || p.wrote.Len() > nonceBytes {
			t.Fatalf("%x: %v; %d bytes", b, err, p.wrote.Len())
		}
		if err := s.Initiate(both{bytes.NewReader(b), io.Discard}, nil); err == nil {
			t.Fatalf("%x passes for an answer", b)
		}
	})
}

// FuzzOpen opens records that were written without the secret.
func FuzzOpen(f *testing.F) {
	s := Secret{}.Derive("fuzz")
	f.Add([]byte{})
	f.Add([]byte(sealMark))
	f.Add(s.Seal("another name", []byte("value")))
	f.Add(s.Derive("x").Seal("name", []byte("value")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := s.Open("name", b); err == nil {
			t.Fatalf("%x opens as %x", b, got)
		}
	})
}

// FuzzParse reads any text as a secret: what is one isn't shown, and white space around it is no part of it.
func FuzzParse(f *testing.F) {
	f.Add(Generate())
	f.Add("too short")
	f.Add(" \n0123456789abcdef\t")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse("\t" + text + "\n"); err != nil || !bytes.Equal(again.Seal("n", nil), s.Seal("n", nil)) {
			t.Errorf("%q: white space makes another secret: %v", text, err)
		}
		if got, err := s.Open("n", s.Seal("n", []byte(text))); err != nil || string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	})
}
