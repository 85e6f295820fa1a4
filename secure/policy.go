package secure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/chorus-comms/chorus/config"
)

// A Policy is what protects the connections of a job. The zero Policy protects nothing, and permits only what doesn't
// leave the host.
type Policy struct {
	// Secret authenticates every connection. It's the same on all ranks.
	Secret Secret
	// TLS encrypts the connections of stores and of TCP links; nil: they aren't. All ranks must agree.
	TLS *TLS
	// Insecure permits to listen for other hosts with neither.
	Insecure bool
	// Plain says who may use a store that this process serves without the secret, as PyTorch's clients do.
	Plain config.Plain
}

// Environment takes the policy from the environment of the process.
func Environment() (Policy, error) {
	c, err := config.Load(nil)
	if err != nil {
		return Policy{}, err
	}
	return Load(c)
}

// Load takes the policy from the environment. If users other than its owner can read a file with a secret or a
// key, the log says so once.
func Load(c *config.Config) (Policy, error) {
	p := Policy{Insecure: c.Insecure, Plain: c.StorePlain}
	if c.Run == "" { // else the launcher has done so
		warnExposed(c.SecretFile)
		warnExposed(c.TLSKey)
	}
	var err error
	switch {
	case c.Secret != "" && c.SecretFile != "":
		return p, errors.New("both CHORUS_SECRET and CHORUS_SECRET_FILE are set; one of them is enough")
	case c.Secret != "":
		if p.Secret, err = Parse(string(c.Secret)); err != nil {
			return p, fmt.Errorf("CHORUS_SECRET: %w", err)
		}
	case c.SecretFile != "":
		if p.Secret, err = ReadFile(c.SecretFile); err != nil {
			return p, fmt.Errorf("CHORUS_SECRET_FILE: %w", err)
		}
	}
	switch {
	case c.TLSCert != "" || c.TLSKey != "" || c.TLSCA != "":
		if p.TLS, err = FromFiles(c.TLSCert, c.TLSKey, c.TLSCA); err != nil {
			return p, fmt.Errorf("CHORUS_TLS_CERT, CHORUS_TLS_KEY and CHORUS_TLS_CA: %w", err)
		}
	case c.TLS:
		p.TLS, err = ownTLS()
	}
	return p, err
}

// Authenticates reports whether every connection proves that it belongs to the job: by the secret, or by certificates.
func (p Policy) Authenticates() bool { return !p.Secret.IsZero() || p.TLS != nil && p.TLS.mutual }

// Check reports what is missing to listen at a host, which is an address or a name; the empty host is all addresses.
// A host that can only be reached from itself needs nothing.
func (p Policy) Check(host string) error {
	if p.TLS != nil && !p.Authenticates() {
		return errTLSAlone
	}
	if p.Insecure || p.Authenticates() || Loopback(host) {
		return nil
	}
	return &ExposedError{Host: host}
}

var errTLSAlone = errors.New("CHORUS_TLS encrypts, but doesn't say who is at the other end: it needs a secret (CHORUS_SECRET_FILE) or certificates (CHORUS_TLS_CERT)")

// Loopback reports whether a host, given by name or address, is only reached from itself.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// SameHost reports whether the other end of a connection is on this host.
func SameHost(c net.Conn) bool {
	if _, ok := c.RemoteAddr().(*net.UnixAddr); ok {
		return true
	}
	here, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	return err1 == nil && err2 == nil && (there.Addr().Unmap().IsLoopback() || here.Addr().Unmap() == there.Addr().Unmap())
}

// An ExposedError says that a process would listen where other hosts reach it, with nothing to tell who may connect.
type ExposedError struct {
	Host string // where
}

func (e *ExposedError) Error() string {
	where := e.Host
	if where == "" {
		where = "all addresses"
	}
	return fmt.Sprintf("listening at %s, which other hosts can reach, needs a secret that all ranks of the job have: "+
		"write one to a file with `chorus secret > job.secret`, copy it to every host, and set CHORUS_SECRET_FILE=job.secret for every rank "+
		"(or CHORUS_SECRET to its text); on a network that you trust CHORUS_INSECURE=true does without", where)
}
