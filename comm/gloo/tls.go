package gloo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/chorus-comms/chorus/secure"
)

// transportVar chooses Gloo's transport, as in PyTorch: TCP, which is the default, or TCP_TLS, with the variables of
// that name and the endings below.
const transportVar = "GLOO_DEVICE_TRANSPORT"

// tlsOf is how the connections of the ranks are encrypted, as PyTorch's variables say; nil: they aren't. Every rank
// proves who it is by a certificate of the same authorities, whose names don't matter.
func tlsOf() (*tls.Config, error) {
	switch kind := os.Getenv(transportVar); kind {
	case "", "TCP":
		return nil, nil
	case "TCP_TLS":
	default:
		return nil, fmt.Errorf("%s=%s: there are TCP and TCP_TLS", transportVar, kind)
	}
	of := func(what string) string { return os.Getenv(transportVar + "_TCP_TLS_" + what) }
	cert, err := secure.LoadPair(of("CERT"), of("PKEY"))
	if err != nil {
		return nil, fmt.Errorf("%s_TCP_TLS_CERT and _PKEY: %w", transportVar, err)
	}
	files, _ := filepath.Glob(filepath.Join(of("CA_PATH"), "*"))
	if of("CA_PATH") == "" {
		files = nil
	}
	if of("CA_FILE") != "" {
		files = append(files, of("CA_FILE"))
	}
	roots, some := x509.NewCertPool(), false
	for _, f := range files {
		if b, err := secure.ReadPEM(f); err == nil {
			some = roots.AppendCertsFromPEM(b) || some
		}
	}
	if !some {
		return nil, fmt.Errorf("%s_TCP_TLS_CA_FILE, or _CA_PATH, has no certificate", transportVar)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, // what follows checks all but the name
		VerifyConnection: func(s tls.ConnectionState) error {
			more := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				more.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: more,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err
		}}, nil
}

// sealed encrypts a connection, if the mesh's are. The client's role follows from the connection's addresses, and not
// from which side has connected.
func (m *mesh) sealed(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if m.tls == nil {
		return conn, nil
	}
	here, err1 := netip.ParseAddrPort(conn.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	over := tls.Server(conn, m.tls)
	if (address{at: here}).dials(address{at: there}) {
		over = tls.Client(conn, m.tls)
	}
	return over, over.HandshakeContext(ctx)
}
