package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/tcp"
	"github.com/chorus-comms/chorus/secure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange returns the Exchange of size ranks that are goroutines.
func exchange(size int) func(rank int) func(context.Context, []byte) ([][]byte, error) {
	var mu sync.Mutex
	all, missing, full := make([][]byte, size), size, make(chan struct{})
	return func(rank int) func(context.Context, []byte) ([][]byte, error) {
		return func(ctx context.Context, payload []byte) ([][]byte, error) {
			mu.Lock()
			all[rank] = payload
			if missing--; missing == 0 {
				close(full)
			}
			mu.Unlock()
			select {
			case <-full:
				return all, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// open opens a world; change may alter each rank's configuration.
func open(size int, change func(*fabric.Config)) ([]fabric.Fabric, error) {
	x := exchange(size)
	fabrics, errs := make([]fabric.Fabric, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			c := fabric.Config{Rank: r, Size: size, Exchange: x(r), HostID: "one", Timeout: 20 * time.Second,
				Options: map[string]string{}}
			if change != nil {
				change(&c)
			}
			fabrics[r], errs[r] = fabric.Open(context.Background(), "tcp", c)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, f := range fabrics {
			if f != nil {
				f.Close(context.Background())
			}
		}
		return nil, err
	}
	return fabrics, nil
}

func world(t testing.TB, size int, change func(*fabric.Config)) []fabric.Fabric {
	t.Helper()
	fabrics, err := open(size, change)
	if err != nil {
		t.Fatal(err)
	}
	return fabrics
}

func kill(f fabric.Fabric) { f.(*tcp.Fabric).Kill() }

func TestFabric(t *testing.T) {
	for _, options := range []map[string]string{
		nil,
		{"connections": "1", "eager": "0", "window": "0"},
		{"connections": "5", "eager": "1000", "window": "100000"},
	} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
				return world(t, size, func(c *fabric.Config) { c.Options = options })
			}, fabrictest.Kill(kill))
		})
	}
}

// TestEncrypted runs the suite over TLS.
func TestEncrypted(t *testing.T) {
	secret, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	var made [8]*secure.TLS
	for i := range made {
		if made[i], err = secure.SelfMade(); err != nil {
			t.Fatal(err)
		}
	}
	protect := func(c *fabric.Config) {
		c.Security = secure.Policy{Secret: secret, TLS: made[c.Rank%len(made)]}
	}
	fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric { return world(t, size, protect) },
		fabrictest.Kill(kill), fabrictest.Skip("NoAllocations")) // crypto/tls allocates now and then
	for range 10 {
		program(t, world(t, 2, func(c *fabric.Config) { // both dial
			protect(c)
			c.Options = map[string]string{"connections": "3", "eager": "100"}
		}))
	}
}

// TestSecrets opens worlds whose ranks have the same secret, or not, and TLS on some of them.
func TestSecrets(t *testing.T) {
	s, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	x, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	program(t, world(t, 3, func(c *fabric.Config) { c.Security.Secret = s }))
	_, err = open(2, func(c *fabric.Config) {
		c.Security.Secret = s
		if c.Rank == 1 {
			c.Security.TLS = x
		}
	})
	if err == nil || !strings.Contains(err.Error(), "TLS is on at one") {
		t.Errorf("TLS at one of two: %v", err)
	}
	_, err = open(2, func(c *fabric.Config) { c.Security.TLS = x })
	if err == nil || !strings.Contains(err.Error(), "CHORUS_SECRET_FILE") {
		t.Errorf("TLS without a secret: %v", err)
	}
	ranks := world(t, 2, func(c *fabric.Config) { c.Security.Secret = s.Derive(fmt.Sprint(c.Rank)) })
	defer ranks[0].Close(context.Background())
	defer ranks[1].Close(context.Background())
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, 20*time.Second)
	m := &fabric.Msg{Peer: 1}
	m.Reset(w)
	ranks[0].Send(m)
	if err := ranks[0].Wait(m, w); !errors.Is(err, secure.ErrRefused) {
		t.Errorf("another secret: %v", err)
	}
}

// TestWhere opens worlds on addresses and interfaces of choice.
func TestWhere(t *testing.T) {
	for _, options := range []map[string]string{{"addr": "::1"}, {"addr": "127.0.0.2"}, {"interface": "lo"},
		{"ports": "21000-21099"},
		{"interface": "none such,127.0.0.0/8"}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			ranks, err := open(3, func(c *fabric.Config) { c.Options, c.HostID = options, fmt.Sprint(c.Rank) })
			if err != nil && options["addr"] == "::1" {
				t.Skip("no IPv6 here: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			program(t, ranks)
		})
	}
}

// TestAdvertise has ranks behind a translation of addresses: they bind one address and are reached at another, at the
// same port.
func TestAdvertise(t *testing.T) {
	translate := func(port string) {
		l, err := net.Listen("tcp", "127.0.0.3:"+port)
		if err != nil {
			t.Skip("left out: ", err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				outside, err := l.Accept()
				if err != nil {
					return
				}
				inside, err := net.Dial("tcp", "127.0.0.2:"+port)
				if err != nil {
					outside.Close()
					continue
				}
				for _, way := range [][2]net.Conn{{outside, inside}, {inside, outside}} {
					go func() {
						io.Copy(way[0], way[1])
						way[0].(*net.TCPConn).CloseWrite()
					}()
				}
			}
		}()
	}
	ports := []string{"21200", "21201"}
	for _, port := range ports {
		translate(port)
	}
	ranks := world(t, 2, func(c *fabric.Config) {
		port := ports[c.Rank]
		c.HostID, c.Options = fmt.Sprint(c.Rank), map[string]string{"addr": "127.0.0.2", "ports": port,
			"advertise": "127.0.0.3"}
	})
	program(t, ranks)
}

// TestHosts has ranks on hosts of their own; they reach each other nevertheless.
func TestHosts(t *testing.T) {
	ranks := world(t, 3, func(c *fabric.Config) { c.HostID, c.Rendezvous = []string{"b", "a", "b"}[c.Rank], "127.0.0.1:29500" })
	program(t, ranks)
}

// TestBothDial has both ranks of a pair connect at once, many times.
func TestBothDial(t *testing.T) {
	for range 40 {
		program(t, world(t, 2, func(c *fabric.Config) { c.Options = map[string]string{"connections": "3", "eager": "100"} }))
	}
}

// program runs a random program on a world and closes it.
func program(t *testing.T, ranks []fabric.Fabric) {
	t.Helper()
	var wg sync.WaitGroup
	for _, f := range ranks {
		wg.Go(func() {
			if err := fabrictest.Program(f, 1); err != nil {
				t.Errorf("rank %d: %v", f.Rank(), err)
			}
			f.Close(context.Background())
		})
	}
	wg.Wait()
}

// TestOpenFails reports at every rank what keeps one of them from taking part.
func TestOpenFails(t *testing.T) {
	for _, c := range []struct {
		option, value, want string
	}{
		{"connections", "7", "connections"}, {"interface", "none such,203.0.113.0/24", "203.0.113.0/24"},
		{"advertise", "0.0.0.0", "advertise"},
		{"speed", "11", "speed"}, {"addr", "192.0.2.1", "192.0.2.1"},
	} {
		_, err := open(3, func(f *fabric.Config) {
			if f.Rank == 1 {
				f.Options[c.option] = c.value
			}
		})
		if err == nil || strings.Count(err.Error(), c.want) < 3 {
			t.Errorf("%s=%s: %v", c.option, c.value, err)
		}
	}
}

// TestPeerGone connects to a rank that isn't there any more.
func TestPeerGone(t *testing.T) {
	ranks := world(t, 2, nil)
	defer ranks[0].Close(context.Background())
	kill(ranks[1])
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, 20*time.Second)
	m := &fabric.Msg{Peer: 1}
	m.Reset(w)
	ranks[0].Send(m)
	var p *fabric.PeerError
	if err := ranks[0].Wait(m, w); !errors.As(err, &p) || p.Peer != 1 {
		t.Errorf("%v", err)
	}
}

// A rank that dies before it has any link is lost to one that waits for it.
func TestDeadBeforeAnyLink(t *testing.T) {
	ranks := world(t, 2, nil)
	defer ranks[0].Close(context.Background())
	kill(ranks[1])
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(t.Context(), 20*time.Second)
	m := &fabric.Msg{Peer: 1}
	m.Reset(w)
	ranks[0].Recv(m)
	var lost *fabric.PeerError
	if err := ranks[0].Wait(m, w); !errors.As(err, &lost) || lost.Peer != 1 {
		t.Errorf("waiting for a dead rank: %v", err)
	}
	ranks[0].Cancel(m)
}

// TestProcesses runs random programs between processes.
func TestProcesses(t *testing.T) {
	fabrictest.Processes(t, 3, func(t *testing.T, c fabric.Config) {
		f, err := fabric.Open(t.Context(), "tcp", c)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) {
			if err := fabrictest.Program(f, seed); err != nil {
				t.Fatal(err) // messages that are left would be taken for the next program's
			}
		}
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
