package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	_ "github.com/chorus-comms/chorus/fabric/mem"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/wire"
)

const patience = 30 * time.Second

// exchange connects the ranks of one process.
type exchange struct {
	mu     sync.Mutex
	size   int
	rounds []*round
}

type round struct {
	all  [][]byte
	left int
	done chan struct{}
}

func (x *exchange) of(rank int) func(context.Context, []byte) ([][]byte, error) {
	next := 0
	return func(ctx context.Context, payload []byte) ([][]byte, error) {
		x.mu.Lock()
		if next == len(x.rounds) {
			x.rounds = append(x.rounds, &round{make([][]byte, x.size), x.size, make(chan struct{})})
		}
		r := x.rounds[next]
		next++
		r.all[rank] = payload
		if r.left--; r.left == 0 {
			close(r.done)
		}
		x.mu.Unlock()
		select {
		case <-r.done:
			return r.all, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openAll opens one rank per host name in this process.
func openAll(hosts string, configure func(*fabric.Config)) ([]*Fabric, []error) {
	names := strings.Fields(hosts)
	ranks, errs := make([]*Fabric, len(names)), make([]error, len(names))
	x := &exchange{size: len(names)}
	var wg sync.WaitGroup
	for r, host := range names {
		wg.Go(func() {
			c := fabric.Config{Rank: r, Size: len(names), Exchange: x.of(r), HostID: host, Timeout: patience,
				Options: map[string]string{}}
			if configure != nil {
				configure(&c)
			}
			f, err := fabric.Open(context.Background(), Name, c)
			if errs[r] = err; err == nil {
				ranks[r] = f.(*Fabric)
			}
		})
	}
	wg.Wait()
	return ranks, errs
}

func open(t testing.TB, hosts string, configure func(*fabric.Config)) []*Fabric {
	t.Helper()
	ranks, errs := openAll(hosts, configure)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

func closeAll(t testing.TB, ranks []*Fabric) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for r, f := range ranks {
		wg.Go(func() {
			if err := f.Close(ctx); err != nil {
				t.Errorf("rank %d: Close: %v", r, err)
			}
		})
	}
	wg.Wait()
}

// checkLeaks fails the test if it leaves goroutines, descriptors, segments or mappings behind.
func checkLeaks(t *testing.T) {
	t.Helper()
	files, before, ignore := openFiles(t), hostmem.ReadStats(), goleak.IgnoreCurrent()
	t.Cleanup(func() {
		hostmem.Trim()
		if after := hostmem.ReadStats(); after.Segments != before.Segments || after.Mappings != before.Mappings {
			t.Errorf("%d segments and %d mappings are left of %d and %d", after.Segments, after.Mappings, before.Segments,
				before.Mappings)
		}
		goleak.VerifyNone(t, ignore)
		if n := openFiles(t); n > files {
			t.Errorf("%d files are open; %d were at the start", n, files)
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// kill ends a rank the way a crash does, as far as its peers can see.
func kill(f fabric.Fabric) {
	h := f.(*Fabric)
	for _, part := range h.parts() {
		switch k := part.(type) {
		case interface{ Kill() }:
			k.Kill()
		case interface{ Kill(error) }:
			k.Kill(errors.New("killed by the test"))
		}
	}
}

// TestFabric runs the suite on worlds whose ranks are spread over hosts in
// different ways.
func TestFabric(t *testing.T) {
	for name, host := range map[string]func(rank int) string{
		"one host":          func(int) string { return "a" },
		"two by two":        func(r int) string { return fmt.Sprint(r / 2) },
		"alternating":       func(r int) string { return fmt.Sprint(r % 2) },
		"two by two in mem": func(r int) string { return fmt.Sprint(r / 2) },
	} {
		configure := func(c *fabric.Config) {
			if strings.HasSuffix(name, "mem") {
				c.Options["near"] = "mem"
			}
		}
		t.Run(name, func(t *testing.T) {
			if name == "alternating" || name == "two by two in mem" {
				testutil.SkipIfShort(t)
			}
			checkLeaks(t)
			var mu sync.Mutex
			var blocks []*hostmem.Block
			t.Cleanup(func() {
				for _, b := range blocks {
					b.Free()
				}
			})
			alloc := func(_ fabric.Fabric, n int) []byte {
				b, err := hostmem.AllocZero(n)
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				blocks = append(blocks, b)
				mu.Unlock()
				return b.Bytes()
			}
			fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
				var hosts []string
				for r := range size {
					hosts = append(hosts, host(r))
				}
				var all []fabric.Fabric
				for _, f := range open(t, strings.Join(hosts, " "), configure) {
					all = append(all, f)
				}
				return all
			}, fabrictest.Alloc(alloc), fabrictest.Kill(kill))
		})
	}
}

func newWaiter() *fabric.Waiter {
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, patience)
	return w
}

func message(w *fabric.Waiter, peer, tag int, buf []byte) *fabric.Msg {
	m := &fabric.Msg{Peer: peer, Key: fabric.Key{Comm: 1, Class: fabric.PointToPoint, Tag: uint64(tag)},
		Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: len(buf)}
	m.Reset(w)
	return m
}

func TestPaths(t *testing.T) {
	if s, err := hostmem.NewSegment(1); errors.Is(err, syscall.ENOSYS) {
		t.Skip(err)
	} else if err == nil {
		s.Close()
	}
	checkLeaks(t)
	for hosts, want := range map[string]string{
		"a":       "self",
		"a a":     "self shm",
		"a b":     "self tcp",
		"a b a b": "self tcp shm tcp",
		"a a b":   "self shm tcp",
		"b a a":   "self tcp tcp",
	} {
		ranks := open(t, hosts, nil)
		var got []string
		for p := range ranks {
			got = append(got, ranks[0].Path(p))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("hosts %s: paths %s, want %s", hosts, s, want)
		}
		if (ranks[0].far != nil) != strings.Contains(want, "tcp") {
			t.Errorf("hosts %s: TCP open is %v", hosts, ranks[0].far != nil)
		}
		if ranks[0].Why() != "" {
			t.Errorf("hosts %s: %s", hosts, ranks[0].Why())
		}
		closeAll(t, ranks)
	}
}

// A receive from any source takes messages of both paths.
func TestAnySource(t *testing.T) {
	checkLeaks(t)
	ranks := open(t, "a a b b", nil)
	const per, n = 20, 20_000
	var wg sync.WaitGroup
	for _, f := range ranks[1:] {
		wg.Go(func() {
			w := newWaiter()
			for range per {
				m := message(w, 0, 1, make([]byte, n))
				f.Send(m)
				if err := f.Wait(m, w); err != nil {
					t.Errorf("rank %d: %v", f.Rank(), err)
				}
			}
		})
	}
	from := map[int]int{}
	w := newWaiter()
	for range 3 * per {
		m := message(w, fabric.AnySource, 1, make([]byte, n))
		ranks[0].Recv(m)
		if err := ranks[0].Wait(m, w); err != nil {
			t.Fatal(err)
		}
		from[m.From]++
	}
	wg.Wait()
	for r := 1; r < 4; r++ {
		if from[r] != per {
			t.Errorf("%d messages from rank %d, want %d", from[r], r, per)
		}
	}
	m := message(w, fabric.AnySource, 2, nil)
	ranks[0].Recv(m)
	ranks[0].Cancel(m)
	if !errors.Is(m.Err, fabric.ErrCanceled) {
		t.Errorf("a canceled receive ends with %v", m.Err)
	}
	closeAll(t, ranks)
}

// connects notes which ranks a fabric is to connect.
type connects struct {
	fabric.Messenger
	ranks []int
}

func (c *connects) Connect(rank int) { c.ranks = append(c.ranks, rank) }

// A receive from any source makes no link of the far fabric to a rank of this host, since a goodbye on it would end
// the near one, too.
func TestConnectsFarRanks(t *testing.T) {
	checkLeaks(t)
	ranks := open(t, "a b a c", nil)
	far := &connects{Messenger: ranks[0].far}
	ranks[0].far = far
	for range 2 {
		w := newWaiter()
		send, recv := message(w, 0, 1, nil), message(w, fabric.AnySource, 1, nil)
		ranks[2].Send(send)
		ranks[0].Recv(recv)
		if err := ranks[0].Wait(recv, w); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{1, 3}; !slices.Equal(far.ranks, want) {
		t.Errorf("the far fabric connects ranks %v, want %v", far.ranks, want)
	}
	ranks[0].far = far.Messenger
	closeAll(t, ranks)
}

// If one rank can't share memory, no rank does, unless it was demanded.
func TestFallBack(t *testing.T) {
	checkLeaks(t)
	refuse := func(c *fabric.Config) {
		if c.Rank == 1 {
			c.Options["near"] = "off"
		}
	}
	ranks := open(t, "a a b b", refuse)
	for r, f := range ranks {
		if !strings.Contains(f.Why(), "rank 1") {
			t.Errorf("rank %d: the reason is %q", r, f.Why())
		}
		if p := f.Path(r ^ 1); p != "tcp" {
			t.Errorf("rank %d reaches its neighbour by %s", r, p)
		}
		if got := fmt.Sprint(f.Hosts()); got != "[0 1 2 3]" {
			t.Errorf("rank %d: hosts %s", r, got)
		}
		if _, err := f.Space(context.Background(), 1, []int{r}, 0); err == nil {
			t.Error("a space was opened")
		}
	}
	closeAll(t, ranks)
	_, errs := openAll("a a", func(c *fabric.Config) {
		refuse(c)
		if c.Rank == 0 {
			c.Options["near"] = "shm"
		}
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1: ") {
			t.Errorf("rank %d, with near=shm at rank 0: %v", r, err)
		}
	}
}

// A rank that can't join the others of its host, which only shows when it tries,
// makes all ranks fall back.
func TestFallBackAfterJoin(t *testing.T) {
	checkLeaks(t)
	ranks := open(t, "a a a b", func(c *fabric.Config) {
		c.Timeout = 4 * time.Second
		if c.Rank != 2 {
			return
		}
		exchange, first := c.Exchange, true
		c.Exchange = func(ctx context.Context, payload []byte) ([][]byte, error) {
			all, err := exchange(ctx, payload)
			if !first || err != nil {
				return all, err
			}
			first = false
			all = slices.Clone(all)
			fields := wire.ReadFields(all[0]) // fabric, failure, card
			message := wire.AppendField(wire.AppendField(nil, fields.Bytes()), fields.Bytes())
			var k card
			json.Unmarshal(fields.Rest(), &k)
			k.Offer = []byte(`{"Host":"a","Socket":"@nobody"}`)
			theirs, _ := json.Marshal(k)
			all[0] = append(message, theirs...)
			return all, nil
		}
	})
	for r, f := range ranks {
		if !strings.Contains(f.Why(), "rank 2: ") || !strings.Contains(f.Why(), "rank 0") {
			t.Errorf("rank %d: the reason is %q", r, f.Why())
		}
	}
	w0, w1 := newWaiter(), newWaiter()
	out, in := message(w0, 1, 0, make([]byte, 100)), message(w1, 0, 0, make([]byte, 100))
	ranks[0].Send(out)
	ranks[1].Recv(in)
	if err := errors.Join(ranks[1].Wait(in, w1), ranks[0].Wait(out, w0)); err != nil {
		t.Error(err)
	}
	closeAll(t, ranks)
}

func TestOptions(t *testing.T) {
	checkLeaks(t)
	for _, bad := range []map[string]string{{"near": "maybe"}, {"far": "fault"}, {"wait": "never"}, {"heartbeat": "never"},
		{"speed": "high"}} {
		_, errs := openAll("a a b", func(c *fabric.Config) {
			if c.Rank == 1 {
				c.Options = bad
			}
		})
		for r, err := range errs {
			if err == nil || r != 1 && !strings.Contains(err.Error(), "rank 1 can't take part: ") {
				t.Errorf("rank %d, with %v at rank 1: %v", r, bad, err)
			}
		}
	}
}
