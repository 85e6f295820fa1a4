package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Options configures a Store.
type Options struct {
	// Prefix is where the keys of the store are in etcd; empty is "/chorus". Stores of the same prefix are one store.
	Prefix string
	// TTL is how long the keys outlive the last process that uses them; 0 is a minute. The first process decides.
	TTL time.Duration
	// Timeout bounds calls whose context has no deadline; 0 is store.DefaultTimeout.
	Timeout time.Duration
	// TLS encrypts the connections; nil: they aren't.
	TLS *tls.Config
	// User and Password are those of etcd's authentication; empty: none.
	User, Password string
}

// complete fills in what is by default.
func (o *Options) complete() error {
	o.Prefix = strings.TrimRight(cmp.Or(o.Prefix, "/chorus"), "/") + "/"
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	o.Timeout = cmp.Or(max(o.Timeout, 0), store.DefaultTimeout)
	if o.TTL < minTTL {
		return fmt.Errorf("a TTL of %v is less than %v", o.TTL, minTTL)
	}
	return nil
}

// minTTL leaves time for a member to fail and another one to answer between two renewals.
var minTTL = 5 * time.Second

func init() { store.Register("etcd", openAddress) }

// openAddress opens the store at an address, for store.Open.
func openAddress(ctx context.Context, address string, opts store.OpenOptions) (store.Store, error) {
	endpoints, o, err := parse(address, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: etcd: %w", store.ErrOptions, err)
	}
	return Open(ctx, endpoints, o)
}

// parse reads an address. No error shows the password in it.
func parse(address string, opts store.OpenOptions) (endpoints []string, o Options, err error) {
	// Package url has one host, so the list of hosts is taken out.
	rest, ok := strings.CutPrefix(address, "etcd://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("etcd://" + user + "host" + tail)
	if err != nil || !ok {
		return nil, o, errors.New("an address is etcd://HOST:PORT,HOST:PORT?OPTION=VALUE")
	}
	if strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, o, fmt.Errorf("path %q is not understood; want ?prefix=%s", u.Path, u.Path)
	}
	for at := range strings.SplitSeq(authority, ",") {
		if host, port, err := net.SplitHostPort(at); err != nil || host == "" || port == "" {
			return nil, o, fmt.Errorf("endpoint %q is not HOST:PORT", at)
		}
		endpoints = append(endpoints, at)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, o, errors.New("the options are no query of a URL")
	}
	for name := range q {
		if !slices.Contains(names, name) {
			return nil, o, fmt.Errorf("no option %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	o = Options{Prefix: q.Get("prefix"), Timeout: opts.Timeout, User: u.User.Username()}
	o.Password, _ = u.User.Password()
	if file := q.Get("password-file"); file != "" {
		text, err := secure.ReadText(file)
		if err != nil {
			return nil, o, err
		}
		o.Password = strings.TrimRight(string(text), "\r\n")
	}
	if o.User == "" && o.Password != "" {
		return nil, o, errors.New("there is a password, but no user before the @")
	}
	if ttl := q.Get("ttl"); ttl != "" {
		if o.TTL, err = time.ParseDuration(ttl); err != nil || o.TTL <= 0 {
			return nil, o, fmt.Errorf("ttl=%s is no duration such as 90s", ttl)
		}
	}
	if o.TLS, err = tlsOf(q, opts); err != nil {
		return nil, o, err
	}
	return endpoints, o, o.complete()
}

var names = []string{"prefix", "ttl", "password-file", "tls", "ca", "cert", "key", "server-name"}

// tlsOf returns what the options say about TLS, or what the policy of the job says; nil for none.
func tlsOf(q url.Values, opts store.OpenOptions) (*tls.Config, error) {
	files := q.Get("ca") != "" || q.Get("cert") != "" || q.Get("key") != "" || q.Get("server-name") != ""
	switch on := q.Get("tls"); {
	case on != "" && on != "on" && on != "off":
		return nil, fmt.Errorf("tls=%s is neither on nor off", on)
	case on == "off" && files:
		return nil, errors.New("tls=off, with files for TLS")
	case on == "off":
		return nil, nil
	case on == "" && !files:
		policy, err := opts.Policy()
		if err != nil || policy.TLS == nil {
			return nil, err
		}
		c := policy.TLS.Mutual()
		if c == nil {
			return nil, errors.New("CHORUS_TLS makes a certificate for each process, which etcd can't check: say ca=FILE, " +
				"tls=on or tls=off, or set CHORUS_TLS_CERT, CHORUS_TLS_KEY and CHORUS_TLS_CA")
		}
		return c, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Get("server-name")}
	if ca := q.Get("ca"); ca != "" {
		pem, err := secure.ReadPEM(ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", ca)
		}
	}
	if cert, key := q.Get("cert"), q.Get("key"); cert != "" || key != "" {
		pair, err := secure.LoadPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
