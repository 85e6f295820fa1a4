package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// TestProtectedHosts starts a job with chorus run on two hosts, which are network namespaces: with a secret and TLS,
// and without either, which is refused with an error that says what to do.
func TestProtectedHosts(t *testing.T) {
	testutil.SkipIfShort(t)
	const network = "10.78.0.%d/24"
	hosts := cable(t, network)
	master, _, _ := strings.Cut(fmt.Sprintf(network, 1), "/")
	dir := t.TempDir()
	chorus := chorusCommand(t)
	secret := filepath.Join(dir, "job.secret")
	if err := os.WriteFile(secret, []byte(secure.Generate()), 0o600); err != nil {
		t.Fatal(err)
	}
	// The lowest port serves one job after the other; none that was just used is given away by the system.
	run := func(port int, variables ...string) (outs [2]string, errs [2]error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i, h := range hosts {
			wg.Go(func() {
				cmd := exec.CommandContext(ctx, "ip", "netns", "exec", h, chorus, "run", "--nnodes", "2", "--node-rank",
					fmt.Sprint(i),
					"--rdzv-endpoint", fmt.Sprintf("%s:%d", master, port), "-n", "2", self(t))
				cmd.Env = append(os.Environ(), append(variables, rankMain+"=1", "CHORUS_HOST_ID=", "CHORUS_FABRIC=")...)
				out, err := cmd.CombinedOutput()
				outs[i], errs[i] = string(out), err
			})
		}
		wg.Wait()
		return outs, errs
	}
	for i, variables := range [][]string{{"CHORUS_SECRET_FILE=" + secret, "CHORUS_TLS=1"}, {"CHORUS_INSECURE=1"}} {
		outs, errs := run(29400+i, variables...)
		for r := range 4 {
			if want := fmt.Sprintf("ok %d of 4", r); !strings.Contains(outs[r/2], want) || errs[r/2] != nil {
				t.Errorf("%v: rank %d: %v\n%s", variables, r, errs[r/2], outs[r/2])
			}
		}
	}
	outs, errs := run(29402)
	for i := range outs {
		if errs[i] == nil || !strings.Contains(outs[i], "chorus secret > job.secret") || !strings.Contains(outs[i],
			"CHORUS_SECRET_FILE") {
			t.Errorf("without a secret: node %d: %v\n%s", i, errs[i], outs[i])
		}
	}
}

// TestForgedAddress has a process that can write the store, but lacks the secret, set the address of a rank. It does so
// in what that rank says of itself, and in what the last rank to come says of all.
func TestForgedAddress(t *testing.T) {
	t.Setenv("CHORUS_SECRET", secure.Generate())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	elsewhere, err := l.Addr().(*net.TCPAddr).AddrPort().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"/1", "/all"} {
		forger := &forging{HashStore: store.NewHash(10 * time.Second), key: key, elsewhere: elsewhere}
		defer forger.Close()
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for r := range errs {
			wg.Go(func() {
				c, err := comm.New(t.Context(), comm.WithStore(forger), comm.WithRank(r, 2), comm.WithTimeout(2*time.Second),
					comm.WithFabric("tcp"))
				if errs[r] = err; err == nil {
					c.Finalize(t.Context())
				}
			})
		}
		wg.Wait()
		// Either rank may be the last, which doesn't read what it has set for all.
		if !errors.Is(errs[0], secure.ErrSeal) && !(key == "/all" && errors.Is(errs[1], secure.ErrSeal)) {
			t.Errorf("%s: a rank believes it: %v", key, errs)
		}
		if forger.forged == 0 {
			t.Errorf("%s: nothing was forged", key)
		}
	}
}

// forging is a store that changes the addresses in what is set under some keys.
type forging struct {
	*store.HashStore
	key       string // the end of the keys
	elsewhere []byte
	mu        sync.Mutex
	forged    int
}

func (s *forging) Set(ctx context.Context, key string, value []byte) error {
	loopback := []byte{127, 0, 0, 1} // as cards have it, with the port behind it
	if i := bytes.Index(value, loopback); i >= 0 && strings.HasSuffix(key, s.key) {
		value = bytes.Clone(value)
		copy(value[i:], s.elsewhere)
		s.mu.Lock()
		s.forged++
		s.mu.Unlock()
	}
	return s.HashStore.Set(ctx, key, value)
}
