package ucx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/hybrid"
	"github.com/chorus-comms/chorus/fabric/ucx"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// need skips a test where there's no UCX.
func need(t testing.TB) {
	t.Helper()
	if _, err := ucx.Describe(); err != nil {
		t.Skip("left out: ", err)
	}
}

// exchange returns the Exchange of size ranks that are goroutines.
func exchange(size int) func(rank int) func(context.Context, []byte) ([][]byte, error) {
	type round struct {
		all     [][]byte
		missing int
		full    chan struct{}
	}
	var mu sync.Mutex
	var rounds []*round
	return func(rank int) func(context.Context, []byte) ([][]byte, error) {
		number := 0
		return func(ctx context.Context, payload []byte) ([][]byte, error) {
			mu.Lock()
			if number == len(rounds) {
				rounds = append(rounds, &round{make([][]byte, size), size, make(chan struct{})})
			}
			x := rounds[number]
			number++
			x.all[rank] = payload
			if x.missing--; x.missing == 0 {
				close(x.full)
			}
			mu.Unlock()
			select {
			case <-x.full:
				return x.all, nil
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
			name := ucx.Name
			if c.Options["far"] != "" {
				name = "auto"
			}
			fabrics[r], errs[r] = fabric.Open(context.Background(), name, c)
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

func kill(f fabric.Fabric) { f.(*ucx.Fabric).Kill() }

func TestFabric(t *testing.T) {
	need(t)
	fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric { return world(t, size, nil) },
		fabrictest.Kill(kill))
}

// TestOptions runs the suite with other sizes, and over shared memory of UCX's.
func TestOptions(t *testing.T) {
	need(t)
	testutil.SkipIfShort(t)
	for _, options := range []map[string]string{
		{"eager": "0", "window": "0"},
		{"eager": "1000", "window": "100000"},
		{"errors": "none", "heartbeat": "1s"},
	} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
				return world(t, size, func(c *fabric.Config) { c.Options = options })
			}, fabrictest.Kill(kill))
		})
	}
}

// TestFar has shared memory within hosts, and UCX between them.
func TestFar(t *testing.T) {
	need(t)
	var wg sync.WaitGroup
	for _, f := range world(t, 3, func(c *fabric.Config) {
		c.HostID = []string{"here", "here", "there"}[c.Rank]
		c.Options = map[string]string{"far": ucx.Name, "eager": "100"}
	}) {
		if path := f.(*hybrid.Fabric).Path(2 - 2*(f.Rank()/2)); path != ucx.Name {
			t.Errorf("rank %d: the path to the other host is %s", f.Rank(), path)
		}
		wg.Go(func() {
			if err := fabrictest.Program(f, 1); err != nil {
				t.Errorf("rank %d: %v", f.Rank(), err)
			}
			f.Close(context.Background())
		})
	}
	wg.Wait()
}

// TestProcesses exchanges messages between processes.
func TestProcesses(t *testing.T) {
	need(t)
	fabrictest.Processes(t, 3, func(t *testing.T, c fabric.Config) {
		f, err := fabric.Open(t.Context(), ucx.Name, c)
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

var worlds atomic.Int64

// TestConformance runs Chorus' own backend over this fabric.
func TestConformance(t *testing.T) {
	ran := testutil.Ran(t, "UCX")
	need(t)
	if d, err := ucx.Describe(); err == nil {
		ran.Version = d.Version
	}
	commtest.Run(t, commtest.Config{Worlds: testutil.Pick([]int{3}, []int{2, 3, 4}),
		Open: func(t testing.TB, size int) []*comm.Comm {
			t.Helper()
			st := store.NewHash(30 * time.Second)
			name := fmt.Sprintf("world%d", worlds.Add(1))
			comms, errs := make([]*comm.Comm, size), make([]error, size)
			var wg sync.WaitGroup
			for r := range size {
				wg.Go(func() {
					comms[r], errs[r] = comm.New(context.Background(), comm.WithFabric(ucx.Name), comm.WithRank(r, size),
						comm.WithStore(st), comm.WithName(name), comm.WithTimeout(30*time.Second))
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			return comms
		}})
}

// TestSecurity opens worlds whose security UCX can provide, or not.
func TestSecurity(t *testing.T) {
	need(t)
	secret, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	made, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	program := func(name string, change func(*fabric.Config)) {
		var wg sync.WaitGroup
		for _, f := range world(t, 2, change) {
			wg.Go(func() {
				if err := fabrictest.Program(f, 1); err != nil {
					t.Errorf("%s: rank %d: %v", name, f.Rank(), err)
				}
				f.Close(context.Background())
			})
		}
		wg.Wait()
	}
	program("with a secret", func(c *fabric.Config) {
		c.Security.Secret, c.Rendezvous = secret, "node0.example"
	})
	program("on trust", func(c *fabric.Config) { c.Security.Insecure, c.Rendezvous = true, "node0.example" })
	for name, x := range map[string]struct {
		change func(*fabric.Config)
		want   string
	}{
		"TLS": {func(c *fabric.Config) { c.Security = secure.Policy{Secret: secret, TLS: made} },
			"UCX doesn't encrypt"},
		"no secret":                 {func(c *fabric.Config) { c.Rendezvous = "node0.example:29500" }, "node0.example"},
		"a device without a secret": {func(c *fabric.Config) { c.Options["devices"] = "eth0" }, "devices eth0"},
	} {
		if _, err := open(2, x.change); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Ranks with different secrets have different keys: nothing that one sends has an effect at the other.
	other, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	ranks := world(t, 2, func(c *fabric.Config) {
		c.Security.Secret = secret
		if c.Rank == 1 {
			c.Security.Secret = other
		}
	})
	buf := make([]byte, 8)
	in := &fabric.Msg{Peer: 1, Key: fabric.Key{Comm: 1}, Buf: unsafe.Pointer(&buf[0]), Len: 8}
	out := &fabric.Msg{Peer: 0, Key: fabric.Key{Comm: 1}, Buf: unsafe.Pointer(&buf[0]), Len: 8}
	w := fabric.NewWaiter(fabric.NewAbort())
	in.Reset(w)
	out.Reset(nil)
	ranks[0].Recv(in)
	ranks[1].Send(out)
	w.Begin(nil, 300*time.Millisecond)
	if err := ranks[0].Wait(in, w); !errors.Is(err, fabric.ErrTimeout) {
		t.Errorf("a message under another secret: %v", err)
	}
	for _, f := range ranks {
		kill(f)
	}
}

// TestKilled ends a rank's process without a goodbye: it becomes another program.
func TestKilled(t *testing.T) {
	need(t)
	fabrictest.Processes(t, 3, func(t *testing.T, c fabric.Config) {
		c.Options = map[string]string{"heartbeat": "3s"}
		f, err := fabric.Open(t.Context(), ucx.Name, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := fabrictest.Program(f, 1); err != nil {
			t.Fatal(err)
		}
		if c.Rank == 2 {
			t.Fatal(syscall.Exec("/bin/true", []string{"true"}, os.Environ()))
		}
		buf := make([]byte, 100_000)
		m := &fabric.Msg{Peer: 2, Key: fabric.Key{Comm: 5}, Buf: unsafe.Pointer(&buf[0]), Len: len(buf)}
		w := fabric.NewWaiter(fabric.NewAbort())
		m.Reset(w)
		f.Recv(m)
		w.Begin(nil, 20*time.Second)
		var lost *fabric.PeerError
		if err := f.Wait(m, w); !errors.As(err, &lost) || lost.Peer != 2 {
			t.Errorf("a receive from a rank that was killed: %v", err)
		}
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
