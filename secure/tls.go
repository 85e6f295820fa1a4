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
	"os"
	"strings"
	"sync"
	"time"
)

// TLS encrypts connections, with TLS 1.3. A nil *TLS leaves them as they are.
type TLS struct {
	config *tls.Config // of either end
	mutual bool        // both ends show certificates of an authority
}

// SelfMade encrypts connections with a certificate that this process makes for itself. Nobody vouches for it: a
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
// signed by an authority in the PEM file ca: whoever has such a certificate belongs to the job, whatever name it bears,
// since ranks connect to addresses and not to names. So the authority should be the job's own, or the cluster's.
func FromFiles(cert, key, ca string) (*TLS, error) {
	if cert == "" || key == "" || ca == "" {
		return nil, errors.New("certificates need three files: certificate, key and authority")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	pem, err := os.ReadFile(ca)
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
	return &TLS{config: c, mutual: true}, nil
}

func verify(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the other end shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// Client encrypts a connection that this end has made. If it fails, or ctx ends, c is closed.
func (t *TLS) Client(ctx context.Context, c net.Conn) (net.Conn, error) {
	if t == nil {
		return c, nil
	}
	return shake(ctx, tls.Client(c, t.config))
}

// Server encrypts a connection that this end has accepted. If it fails, or ctx ends, c is closed.
func (t *TLS) Server(ctx context.Context, c net.Conn) (net.Conn, error) {
	if t == nil {
		return c, nil
	}
	return shake(ctx, tls.Server(c, t.config))
}

func shake(ctx context.Context, c *tls.Conn) (net.Conn, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		c.NetConn().Close()
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && strings.HasPrefix(Unwelcome,
			string(plain.RecordHeader[:])) {
			err = ErrNoTLS
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return c, nil
}

// ownTLS makes the certificate of this process once.
var ownTLS = sync.OnceValues(SelfMade)
