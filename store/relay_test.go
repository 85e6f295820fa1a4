//go:build unix

package store_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
)

// relay starts a relay to a server that demands proof of every client, and stops it at the test's
// end.
func relay(t testing.TB, policy secure.Policy, opts store.RelayOptions) (*store.Relay, *store.TCPServer) {
	t.Helper()
	policy.Plain = config.PlainNone
	srv := server(t, store.ServerOptions{Security: policy})
	r, err := store.NewRelay(srv.Addr().String(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, srv
}

// TestRelay runs the suite with clients that prove nothing, in both dialects, through a relay.
func TestRelay(t *testing.T) {
	s := secret(t)
	for name, policy := range map[string][2]secure.Policy{"secret": {{Secret: s}, {Secret: s}}, "TLS": {encrypted(t, s),
		encrypted(t, s)}} {
		for _, d := range []store.Dialect{store.DialectS0, store.DialectS1} {
			t.Run(name+", "+d.String(), func(t *testing.T) {
				lacks := storetest.Options{NoQueues: d == store.DialectS0, NoListKeys: d == store.DialectS0}
				storetest.Run(t, func(t *testing.T) (a, b store.Store) {
					r, _ := relay(t, policy[0], store.RelayOptions{Security: policy[1]})
					opts := store.TCPOptions{Dialect: d}
					return dial(t, r.Addr().String(), opts), dial(t, r.Addr().String(), opts)
				}, lacks)
			})
		}
	}
}

// TestRelayEnds takes its connections along, and those of a store that ends.
func TestRelayEnds(t *testing.T) {
	s := secret(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, what := range []string{"relay", "store", "client"} {
		r, srv := relay(t, secure.Policy{Secret: s}, store.RelayOptions{Security: secure.Policy{Secret: s}})
		c := raw(t, r.Addr().String())
		// A request of S0 without an answer: SET of k to v.
		if _, err := io.WriteString(c,
			"\x00\x02\x00\x00\x00\x00\x00\x00\x00/k\x01\x00\x00\x00\x00\x00\x00\x00v"); err != nil {
			t.Fatal(err)
		}
		if what == "client" {
			c.Close() // what it has said arrives all the same
		}
		if err := srv.Local().Wait(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		switch what {
		case "relay":
			r.Close()
		case "store":
			srv.Close()
		default:
			if err := srv.Drain(ctx); err != nil {
				t.Error(err)
			}
			continue
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s ended: %v", what, err)
		}
	}
}

// TestRelayOfAnotherSecret passes nothing on.
func TestRelayOfAnotherSecret(t *testing.T) {
	r, _ := relay(t, secure.Policy{Secret: secret(t)}, store.RelayOptions{Security: secure.Policy{Secret: secret(t)}})
	if st, err := store.DialTCP(t.Context(), r.Addr().String(),
		store.TCPOptions{Timeout: 200 * time.Millisecond}); err == nil {
		st.Close()
		t.Error("a relay without the secret of the store works")
	}
}

// TestRelayForAnotherUser has another user's process connect, which hears nothing, and which the relay mentions once.
func TestRelayForAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: only root can start processes of another user")
	}
	s := secret(t)
	mentioned := make(chan error, 9)
	r, srv := relay(t, secure.Policy{Secret: s}, store.RelayOptions{
		Security: secure.Policy{Secret: s}, OnRefused: func(e error) { mentioned <- e },
	})
	host, port, _ := net.SplitHostPort(r.Addr().String())
	for range 3 {
		cmd := exec.Command("bash", "-c",
			`exec 3<>/dev/tcp/`+host+`/`+port+`; printf '\0\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v' >&3; cat <&3`)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, _ := cmd.Output(); len(out) != 0 {
			t.Errorf("it heard %q", out)
		}
	}
	if n, err := srv.Local().NumKeys(t.Context()); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
	r.Close()
	if len(mentioned) != 1 {
		t.Fatalf("mentioned %d times", len(mentioned))
	}
	if e := <-mentioned; !errors.Is(e, secure.ErrOtherUser) || !strings.Contains(e.Error(), "uid 65534") {
		t.Error(e)
	}
}
