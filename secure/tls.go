package secure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

// TLS encrypts connections, with TLS 1.3. A nil *TLS leaves them as they are.
type TLS struct {
	config *tls.Config       // of either end
	mutual bool              // both ends show certificates of an authority
	file   string            // that holds this end's certificate; empty: the process has made it
	leaf   *x509.Certificate // this end's
}

// SelfMade encrypts connections with a certificate that this process makes for itself. No authority signs it: a
// connection has to go through Initiate and Respond, which find out whether the other end has the same secret and the
// same connection.
func SelfMade() (*TLS, error) {
	cert, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // the proofs take its place
	}
	return &TLS{config: c}, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	begin := time.Now().Add(-24 * time.Hour) // clocks differ
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// FromFiles encrypts connections with the certificate and key in two PEM files. Both ends show one, and it must be
// signed by an authority in the PEM file ca. Every process with such a certificate belongs to the job. The name in it
// doesn't count, since ranks connect to addresses and not to names. So the authority should be the job's own, or the
// cluster's. An expired certificate is an error, since no peer would accept it.
func FromFiles(cert, key, ca string) (*TLS, error) {
	t, err := fromFiles(cert, key, ca)
	if err == nil && time.Now().After(t.leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s expired on %s", cert, formatTime(t.leaf.NotAfter))
	}
	return t, err
}

// LoadPair reads a certificate and its key from two PEM files.
func LoadPair(cert, key string) (tls.Certificate, error) {
	c, err := ReadPEM(cert)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %w", err)
	}
	k, err := ReadPEM(key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key %w", err)
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return pair, nil
}

func fromFiles(cert, key, ca string) (*TLS, error) {
	if cert == "" || key == "" || ca == "" {
		return nil, errors.New("certificates need three files: certificate, key and authority")
	}
	pair, err := LoadPair(cert, key)
	if err != nil {
		return nil, err
	}
	pem, err := ReadPEM(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", ca)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // VerifyConnection verifies all but the name
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(s, roots) },
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", cert, err)
	}
	return &TLS{config: c, mutual: true, file: cert, leaf: leaf}, nil
}

// ErrCertificate says that one of the two ends refuses the certificate of the other.
var ErrCertificate = errors.New("TLS certificate refused")

func verify(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("%w: the other end shows none", ErrCertificate)
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	leaf := s.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err == nil {
		return nil
	}
	if now := time.Now(); now.After(leaf.NotAfter) {
		return fmt.Errorf("%w: that of the other end (%s) expired on %s", ErrCertificate, describe(leaf), formatTime(leaf.NotAfter))
	} else if now.Before(leaf.NotBefore) {
		return fmt.Errorf("%w: that of the other end (%s) is valid only from %s on", ErrCertificate, describe(leaf),
			formatTime(leaf.NotBefore))
	}
	return fmt.Errorf("%w: that of the other end (%s): %w", ErrCertificate, describe(leaf), err)
}

// describe is who a certificate says it's for, which is text for a console, whatever it holds.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf("subject %.80q, serial number %.40x", c.Subject.String(), c.SerialNumber)
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Explain adds what it means if the other end has refused this end's certificate. It takes the error of a connection's
// first reads: in TLS 1.3 a client gets a refusal after its own handshake.
func (t *TLS) Explain(err error) error {
	remote, ok := errors.AsType[*net.OpError](err)
	if t == nil || t.leaf == nil || !ok || remote.Op != "remote error" || remote.Err == nil ||
		!strings.Contains(remote.Err.Error(), "certificate") || errors.Is(err, ErrCertificate) {
		return err
	}
	state := "is valid until " + formatTime(t.leaf.NotAfter)
	if now := time.Now(); now.After(t.leaf.NotAfter) {
		state = "expired on " + formatTime(t.leaf.NotAfter)
	} else if now.Before(t.leaf.NotBefore) {
		state = "is valid only from " + formatTime(t.leaf.NotBefore) + " on"
	}
	return fmt.Errorf("%w: the other end doesn't take this one's, %s, which %s: %w", ErrCertificate, t.file, state, err)
}

// Mutual returns a configuration for a library that makes its connections itself, to servers whose certificates an
// authority of the job signs; nil if t isn't of files.
func (t *TLS) Mutual() *tls.Config {
	if t == nil || !t.mutual {
		return nil
	}
	return t.config.Clone()
}

// Client encrypts a connection that this end has made. If it fails, or ctx ends, c is closed.
func (t *TLS) Client(ctx context.Context, c net.Conn) (net.Conn, error) {
	if t == nil {
		return c, nil
	}
	return t.handshake(ctx, tls.Client(c, t.config))
}

// Server encrypts a connection that this end has accepted. If it fails, or ctx ends, c is closed.
func (t *TLS) Server(ctx context.Context, c net.Conn) (net.Conn, error) {
	if t == nil {
		return c, nil
	}
	return t.handshake(ctx, tls.Server(c, t.config))
}

func (t *TLS) handshake(ctx context.Context, c *tls.Conn) (net.Conn, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		c.NetConn().Close()
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && strings.HasPrefix(Unwelcome,
			string(plain.RecordHeader[:])) {
			err = ErrNoTLS
		}
		if err = t.Explain(err); errors.Is(err, ErrCertificate) {
			return nil, err
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return c, nil
}

// ownTLS makes the certificate of this process once.
var ownTLS = sync.OnceValues(SelfMade)
