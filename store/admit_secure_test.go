package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
)

func secret(t testing.TB) secure.Secret {
	t.Helper()
	s, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encrypted(t testing.TB, s secure.Secret) secure.Policy {
	t.Helper()
	x, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	return secure.Policy{Secret: s, TLS: x}
}

// TestProtectedStore runs the suite over authenticated and over encrypted connections.
func TestProtectedStore(t *testing.T) {
	s := secret(t)
	for name, p := range map[string][2]secure.Policy{
		"secret": {{Secret: s}, {Secret: s}},
		"TLS":    {encrypted(t, s), encrypted(t, s)},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				addr := server(t, store.ServerOptions{Security: p[0]}).Addr().String()
				return dial(t, addr, store.TCPOptions{Security: p[1]}), dial(t, addr, store.TCPOptions{Security: p[1]})
			}, storetest.Options{})
		})
	}
}

func TestSealedStore(t *testing.T) {
	ctx := t.Context()
	base := store.NewHash(time.Second)
	s := secret(t)
	a, b := store.NewPrefix("p", store.NewSealed(s, base)), store.NewSealed(s, base)
	if err := a.Set(ctx, "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if v, err := b.Get(ctx, "p/k"); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := a.CompareSet(ctx, "k", []byte("v"), []byte("w")); err != nil || string(v) != "w" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := a.CompareSet(ctx, "k", []byte("v"), []byte("x")); err != nil || string(v) != "w" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := a.CompareSet(ctx, "fresh", nil, []byte("x")); err != nil || string(v) != "x" {
		t.Errorf("%q, %v", v, err)
	}
	if all, err := store.MultiGet(ctx, a, "k", "fresh"); err != nil || string(bytes.Join(all, nil)) != "wx" {
		t.Errorf("%q, %v", all, err)
	}
	if n, err := a.Add(ctx, "n", 2); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}

	// A record is refused if it was written without the secret, with another, or moved from another key.
	sealed, err := base.Get(ctx, "p/k")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{
		"plain": []byte("v"), "moved": sealed, "another secret": secret(t).Seal("forged", []byte("v")), "empty": nil,
	} {
		if err := base.Set(ctx, "forged", value); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Get(ctx, "forged"); !errors.Is(err, secure.ErrSeal) || !strings.Contains(err.Error(), "forged") {
			t.Errorf("%s: %q, %v", name, v, err)
		}
		if v, err := b.MultiGet(ctx, "p/k", "forged"); !errors.Is(err, secure.ErrSeal) {
			t.Errorf("%s: %q, %v", name, v, err)
		}
	}
	// A rank without the secret learns what is wrong.
	if v, err := store.NewSealed(secure.Secret{}, base).Get(ctx, "p/k"); !errors.Is(err, secure.ErrSealed) ||
		!strings.Contains(err.Error(), "CHORUS_SECRET_FILE") {
		t.Errorf("%q, %v", v, err)
	}
}

// TestWrongSecret fails at once, not at the deadline, and says why.
func TestWrongSecret(t *testing.T) {
	s := secret(t)
	with, tls := store.ServerOptions{Security: secure.Policy{Secret: s}}, store.ServerOptions{Security: encrypted(t, s)}
	ours, theirs := testutil.NewCertAuthority(t), testutil.NewCertAuthority(t)
	certified := func(by, trusted *testutil.CertAuthority, s secure.Secret) secure.Policy {
		cert, key := by.Issue(t, time.Now().Add(time.Hour))
		x, err := secure.FromFiles(cert, key, trusted.File)
		if err != nil {
			t.Fatal(err)
		}
		return secure.Policy{Secret: s, TLS: x}
	}
	none := secure.Secret{}
	for name, c := range map[string]struct {
		server store.ServerOptions
		client secure.Policy
		want   error
		said   string // by the server
	}{
		"another": {with, secure.Policy{Secret: secret(t)}, secure.ErrRefused,
			"rank 1 on host x, was refused: its proof is by another secret"},
		"another, with TLS": {tls, encrypted(t, secret(t)), secure.ErrRefused,
			"rank 1 on host x, was refused: its proof is by another secret"},
		"the server has none": {store.ServerOptions{}, secure.Policy{Secret: s}, secure.ErrNoSecret,
			"rank 1 on host x, was refused: it has a secret"},
		"the client has none": {with, secure.Policy{}, secure.ErrWantsSecret, "connected without the secret of the job"},
		"only the server TLS": {tls, secure.Policy{Secret: s}, secure.ErrWantsTLS,
			"rank 1 on host x, was refused: it doesn't use TLS"},
		"only the client TLS": {with, encrypted(t, s), secure.ErrNoTLS, "was refused: it uses TLS"},
		"PyTorch's, and TLS":  {tls, secure.Policy{}, secure.ErrWantsSecret, "connected without the secret of the job"},
		"TLS without a secret": {tls, secure.Policy{TLS: encrypted(t, s).TLS}, secure.ErrWantsSecret,
			"connected without the secret of the job"},
		"a client's certificate": {store.ServerOptions{Security: certified(ours, ours, none)}, certified(theirs, ours, none),
			secure.ErrCertificate, "was refused: TLS certificate refused: that of the other end"},
		"a client's certificate, with a secret": {store.ServerOptions{Security: certified(ours, ours, s)},
			certified(theirs, ours, s), secure.ErrCertificate,
			"was refused: TLS certificate refused: that of the other end"},
		"the server's certificate": {store.ServerOptions{Security: certified(theirs, ours, none)},
			certified(ours, ours, none), secure.ErrCertificate,
			"was refused: TLS certificate refused: the other end doesn't take this one's"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			told := make(chan error, 99)
			c.server.OnRefused = func(err error) { told <- err }
			for _, d := range []store.Dialect{store.DialectDefault, store.DialectProbe} {
				srv := server(t, c.server)
				st, err := store.DialTCP(ctx, srv.Addr().String(), store.TCPOptions{Security: c.client, Name: "rank 1 on host x",
					Dialect: d})
				if err == nil {
					st.Close()
				}
				if !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
				srv.Close()
				if len(told) != 1 {
					t.Fatalf("the server has told of %d clients", len(told))
				}
				if said := (<-told).Error(); !strings.Contains(said, c.said) || !strings.HasPrefix(said, "127.0.0.1:") {
					t.Errorf("the server says %q, want %q", said, c.said)
				}
			}
		})
	}
}

// The hello of a client that has a secret, and calls itself nothing.
var authHello = "\xffCHORUS\x02" + strings.Repeat("\x00", 88)

// raw is a connection made by hand.
func raw(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

// overheard is what a good client has sent to the server.
func overheard(t testing.TB, addr string, s secure.Secret) []byte {
	t.Helper()
	var mu sync.Mutex
	var sent []byte
	st := dial(t, addr, store.TCPOptions{Security: secure.Policy{Secret: s},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &tapped{c, &mu, &sent}, err
		}})
	if err := st.Set(t.Context(), "overheard", nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(sent)
}

// tapped is a connection whose bytes are recorded.
type tapped struct {
	net.Conn
	mu   *sync.Mutex
	sent *[]byte
}

func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	*c.sent = append(*c.sent, b...)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// TestStrangers sends what a client without the secret can send: it gets random bytes at most, and the store
// doesn't change.
func TestStrangers(t *testing.T) {
	s := secret(t)
	set := "\x00\xce\xf7\x85\x3c\x0d\x01\x00\x00\xff" + // VALIDATE and PING, as PyTorch's clients begin
		"\x01\x05\x00\x00\x00\x00\x00\x00\x00/evil\x01\x00\x00\x00\x00\x00\x00\x00x"
	for name, policy := range map[string]secure.Policy{
		"secret": {Secret: s}, "TLS": encrypted(t, s), "never": {Secret: s, Plain: config.PlainNone},
	} {
		srv := server(t, store.ServerOptions{Security: policy})
		addr := srv.Addr().String()
		if err := srv.Local().Set(t.Context(), "k", []byte("precious")); err != nil {
			t.Fatal(err)
		}
		transcript := []byte(authHello + strings.Repeat("n", 32) + strings.Repeat("p", 32) + set)
		if policy.TLS == nil {
			transcript = overheard(t, addr, s)
		}
		before, _ := srv.Local().NumKeys(t.Context())
		for what, b := range map[string][]byte{
			"PyTorch": []byte(set), "S0": []byte("\x00\x05\x00\x00\x00\x00\x00\x00\x00/evil\x01\x00\x00\x00\x00\x00\x00\x00x"),
			"replayed": transcript, "cut hello": []byte(authHello[:5]), "cut": []byte(authHello + "half of its random bytes"),
			"no proof": []byte(authHello + strings.Repeat("n", 64)), "zeros": make([]byte, 200),
			"HTTP": []byte("GET / HTTP/1.1\r\n\r\n"),
			"TLS":  []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "nothing": nil,
		} {
			c := raw(t, addr)
			c.Write(b)
			c.(*net.TCPConn).CloseWrite()
			heard, err := io.ReadAll(c)
			limit := 0 // bytes
			if len(b) > 0 && (b[0] == 0 || b[0] == 0x16) {
				limit = len(secure.Unwelcome)
			}
			if bytes.HasPrefix(b, []byte(authHello)) {
				limit = 32 // the server's random bytes, or the word that it wants TLS
			}
			if errors.Is(err, os.ErrDeadlineExceeded) || len(heard) > limit || bytes.Contains(heard, []byte("precious")) {
				t.Errorf("%s, %s: heard %q, %v", name, what, heard, err)
			}
		}
		if after, _ := srv.Local().NumKeys(t.Context()); after != before {
			t.Errorf("%s: %d keys have become %d", name, before, after)
		}
	}
}

// TestPlainClients are PyTorch's: those of the same user on the same host may be let in.
func TestPlainClients(t *testing.T) {
	s := secret(t)
	for _, policy := range []secure.Policy{
		{Secret: s, Plain: config.PlainUser}, {Secret: s, Plain: config.PlainAny}, {Plain: config.PlainUser},
		{Plain: config.PlainNone}, {Insecure: true},
		{Secret: s, TLS: encrypted(t, s).TLS, Plain: config.PlainUser},
	} {
		srv := server(t, store.ServerOptions{Security: policy})
		for _, d := range []store.Dialect{store.DialectS0, store.DialectS1} {
			if err := dial(t, srv.Addr().String(), store.TCPOptions{Dialect: d}).Set(t.Context(), "k", nil); err != nil {
				t.Errorf("%+v: %v", policy, err)
			}
		}
	}
}

// TestListenAnywhere takes only loopback for anywhere if nothing protects the store.
func TestListenAnywhere(t *testing.T) {
	for _, c := range []struct {
		policy   secure.Policy
		loopback bool
	}{{secure.Policy{}, true}, {secure.Policy{Secret: secret(t)}, false}, {secure.Policy{Insecure: true}, false}} {
		srv, err := store.ListenTCP(":0", store.ServerOptions{Security: c.policy})
		if err != nil {
			t.Fatal(err)
		}
		if got := srv.Addr().(*net.TCPAddr).IP.IsLoopback(); got != c.loopback {
			t.Errorf("%+v: listens at %v", c.policy, srv.Addr())
		}
		srv.Close()
	}
}

// TestFlood opens many unauthenticated connections while clients work.
func TestFlood(t *testing.T) {
	n := 300
	if os.Getenv("CHORUS_TEST_LONG") == "1" {
		n = 10_000
	}
	policy := secure.Policy{Secret: secret(t)}
	srv := server(t, store.ServerOptions{Security: policy})
	addr := srv.Addr().String()
	early := dial(t, addr, store.TCPOptions{Security: policy})
	var flood sync.WaitGroup
	var silent []net.Conn
	for range 20 {
		silent = append(silent, raw(t, addr)) // holds its place as long as it can
	}
	flood.Go(func() {
		for i := range n {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			c.Write([]byte([]string{"GET / HTTP/1.1\r\n\r\n", authHello, strings.Repeat("\xff", 100),
				"\x00\xce\xf7\x85\x3c"}[i%4]))
			c.Close()
		}
	})
	for i := range 100 {
		if sum, err := early.Add(t.Context(), "count", 1); err != nil || sum != int64(i+1) {
			t.Fatalf("%d, %v", sum, err)
		}
	}
	late := dial(t, addr, store.TCPOptions{Security: policy})
	if sum, err := late.Add(t.Context(), "count", 0); err != nil || sum != 100 {
		t.Errorf("%d, %v", sum, err)
	}
	flood.Wait()
	for _, c := range silent {
		c.Close()
	}
}
