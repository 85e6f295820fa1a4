package testutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A CertAuthority vouches for the certificates that it issues.
//
//	a := testutil.NewCertAuthority(t)
//	cert, key := a.Issue(t, time.Now().Add(time.Hour))
//	tls, err := secure.FromFiles(cert, key, a.File)
type CertAuthority struct {
	File string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCertAuthority makes an authority.
func NewCertAuthority(t testing.TB) *CertAuthority {
	t.Helper()
	a := &CertAuthority{}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	a.File, _ = a.issue(t, template)
	return a
}

// Issue makes a certificate for the loopback that expires at end, and returns the files of it and of its key.
func (a *CertAuthority) Issue(t testing.TB, end time.Time) (cert, key string) {
	t.Helper()
	return a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "rank"}, NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// issue makes the authority's own certificate if it has none yet.
func (a *CertAuthority) issue(t testing.TB, template *x509.Certificate) (cert, key string) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	signer, signing := a.cert, a.key
	if signer == nil {
		signer, signing = template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, own.Public(), signing)
	check(err)
	if a.cert == nil {
		a.key = own
		a.cert, err = x509.ParseCertificate(der)
		check(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	check(err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}
