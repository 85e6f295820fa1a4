package secure

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
)

func selfMade(t *testing.T) *TLS {
	t.Helper()
	x, err := SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// encrypt joins two ends by TLS.
func encrypt(t *testing.T, client, server *TLS) (c, s net.Conn, ec, es error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	a, b := tcpPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, ec = client.Client(ctx, a)
	}()
	s, es = server.Server(ctx, b)
	<-done
	return c, s, ec, es
}

// tcpPair returns the ends of a connection, which are closed with the test.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { c.Close() })
	}
	return a, b
}

func TestSelfMade(t *testing.T) {
	c, s, ec, es := encrypt(t, selfMade(t), selfMade(t))
	if ec != nil || es != nil {
		t.Fatal(ec, es)
	}
	secret := fresh(t)
	if ea, eb := meetOn(c, s, secret, secret, "x", "x"); ea != nil || eb != nil {
		t.Error(ea, eb)
	}
}

// TestBetween puts a man in the middle of the two ends, who has TLS with both of them and passes
// everything on.
func TestBetween(t *testing.T) {
	client, near, ec, es := encrypt(t, selfMade(t), selfMade(t))
	if ec != nil || es != nil {
		t.Fatal(ec, es)
	}
	far, server, ec, es := encrypt(t, selfMade(t), selfMade(t))
	if ec != nil || es != nil {
		t.Fatal(ec, es)
	}
	pass := func(to, from net.Conn, done chan<- struct{}) {
		defer close(done)
		defer to.Close()
		b := make([]byte, 100)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			to.Write(b[:n])
		}
	}
	there, back := make(chan struct{}), make(chan struct{})
	go pass(far, near, there)
	go pass(near, far, back)
	secret := fresh(t)
	ea, eb := meetOn(client, server, secret, secret, "x", "x")
	if !errors.Is(ea, ErrRefused) || !errors.Is(eb, ErrRefused) {
		t.Errorf("nobody noticed; client: %v; server: %v", ea, eb)
	}
	<-there
	<-back
}

func TestFromFiles(t *testing.T) {
	load := func(certs, trusted *testutil.CertAuthority, end time.Time) *TLS {
		cert, key := certs.Issue(t, end)
		x, err := fromFiles(cert, key, trusted.File)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ours, theirs := testutil.NewCertAuthority(t), testutil.NewCertAuthority(t)
	later, ago := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	if cert, key := ours.Issue(t, ago); true {
		if _, err := FromFiles(cert, key, ours.File); err == nil || !strings.Contains(err.Error(), cert+" expired on "+
			formatTime(ago)) {
			t.Errorf("an expired certificate is loaded: %v", err)
		}
	}
	good := load(ours, ours, later)
	if p := (Policy{TLS: good}); !p.Authenticates() || p.Check("node0") != nil {
		t.Error("certificates don't authenticate")
	}
	for name, c := range map[string]struct {
		client, server *TLS
		good           bool
		says           string // both of them
	}{
		"same authority":              {good, load(ours, ours, later), true, ""},
		"client of another authority": {load(theirs, ours, later), good, false, ""},
		"server of another authority": {good, load(theirs, ours, later), false, ""},
		"self-made client":            {selfMade(t), good, false, ""},
		"self-made server":            {good, selfMade(t), false, ""},
		"expired client":              {load(ours, ours, ago), good, false, "expired on " + formatTime(ago)},
		"expired server":              {good, load(ours, ours, ago), false, "expired on " + formatTime(ago)},
	} {
		client, server, ec, es := encrypt(t, c.client, c.server)
		if ec == nil && es == nil && c.good {
			continue
		}
		// In TLS 1.3 a client whose certificate is refused learns so when it reads.
		if ec == nil && es != nil {
			_, ec = client.Read(make([]byte, 1))
			ec = c.client.Explain(ec)
		}
		if es == nil && ec != nil {
			_, es = server.Read(make([]byte, 1))
			es = c.server.Explain(es)
		}
		if c.good || ec == nil || es == nil {
			t.Errorf("%s: client: %v; server: %v", name, ec, es)
			continue
		}
		for end, err := range map[string]error{"client": ec, "server": es} {
			if c.says != "" && (!errors.Is(err, ErrCertificate) || !Foreign(err) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: the %s says: %v", name, end, err)
			}
		}
	}
}
