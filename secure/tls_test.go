package secure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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

// TestBetween puts somebody between the two ends who has TLS with both of them and passes everything on.
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

// authority makes certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate that expires at end.
func (a *authority) issue(t *testing.T, end time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, "rank.pem", "CERTIFICATE", der), a.write(t, "rank.key", "PRIVATE KEY", kder)
}

func TestFromFiles(t *testing.T) {
	load := func(certs, trusted *authority, end time.Time) *TLS {
		cert, key := certs.issue(t, end)
		x, err := FromFiles(cert, key, filepath.Join(trusted.dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ours, theirs := newAuthority(t), newAuthority(t)
	later, ago := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	good := load(ours, ours, later)
	if p := (Policy{TLS: good}); !p.Authenticates() || p.Check("node0") != nil {
		t.Error("certificates don't authenticate")
	}
	for name, c := range map[string]struct {
		client, server *TLS
		good           bool
	}{
		"same authority":              {good, load(ours, ours, later), true},
		"client of another authority": {load(theirs, ours, later), good, false},
		"server of another authority": {good, load(theirs, ours, later), false},
		"self-made client":            {selfMade(t), good, false},
		"self-made server":            {good, selfMade(t), false},
		"expired":                     {load(ours, ours, ago), good, false},
	} {
		client, server, ec, es := encrypt(t, c.client, c.server)
		if ec == nil && es == nil && c.good {
			continue
		}
		// In TLS 1.3 a client whose certificate is refused learns so when it reads.
		if ec == nil && es != nil {
			_, ec = client.Read(make([]byte, 1))
		}
		if es == nil && ec != nil {
			_, es = server.Read(make([]byte, 1))
		}
		if c.good || ec == nil || es == nil {
			t.Errorf("%s: client: %v; server: %v", name, ec, es)
		}
	}
}
