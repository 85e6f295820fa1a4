package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// elasticWorld is a job of launchers in virtual time that meet in a store. Their ranks are only said to run.
type elasticWorld struct {
	t     testing.TB
	store *store.HashStore
	down  atomic.Bool // the store doesn't answer
	job   Config
	nodes []*elasticNode
}

type elasticNode struct {
	*elastic
	name    string
	dead    bool // it was killed
	started chan *Start
	do      chan *process.Failure // what its ranks do: nil is to finish well
	stop    context.CancelFunc
	result  chan error
	mu      sync.Mutex
	said    []string
}

func newElasticWorld(t testing.TB, least, most int) *elasticWorld {
	w := &elasticWorld{t: t, store: store.NewHash(time.Hour), job: Config{
		Nodes: most, MinNodes: least, RanksPerNode: 2, RunID: "r", Store: "hash:", Role: "default",
		JoinTimeout: time.Minute, LastCall: 30 * time.Second, LostAfter: 5 * time.Second, Grace: time.Second,
		Monitor: 100 * time.Millisecond,
	}}
	return w
}

// failingStore is a store that may fail to answer.
type failingStore struct {
	store.Store
	down *atomic.Bool
}

var errDown = errors.New("the store is down")

func (s failingStore) Check(ctx context.Context, keys ...string) (bool, error) {
	if s.down.Load() {
		return false, errDown
	}
	return s.Store.Check(ctx, keys...)
}

func (s failingStore) Set(ctx context.Context, key string, value []byte) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.Set(ctx, key, value)
}

type noStore struct{}

func (noStore) Port() int    { return 1234 }
func (noStore) Close() error { return nil }

// come starts a launcher.
func (w *elasticWorld) come() *elasticNode {
	w.t.Helper()
	job := w.job
	rv := newRendezvous(&job, fmt.Sprintf("host%d", len(w.nodes)))
	rv.store = store.NewPrefix(rv.prefix(), failingStore{w.store, &w.down})
	rv.serve = func(string, int) (listening, error) { return noStore{}, nil }
	n := &elasticNode{name: rv.host, started: make(chan *Start, 100), do: make(chan *process.Failure),
		result: make(chan error, 1)}
	e, err := newElastic(w.t.Context(), rv, func(format string, args ...any) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.said = append(n.said, fmt.Sprintf(format, args...))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.elastic = e
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	go func() { n.result <- n.run(ctx) }()
	w.nodes = append(w.nodes, n)
	return n
}

// run does what a runner does.
func (n *elasticNode) run(ctx context.Context) error {
	for next := 0; ; next++ {
		s, err := n.Begin(ctx, next)
		f, over := err.(*process.Failure)
		if err != nil && !over {
			return err
		}
		if s == nil {
			s = &Start{Attempt: next}
		}
		if next = s.Attempt; !over {
			n.started <- s
			select {
			case f = <-n.News():
			case f = <-n.do:
				if f == nil {
					n.Finished(next)
					f = <-n.News()
				} else {
					f.Attempt, f.Node, f.Host = next, n.Node, n.host
					f = n.Failed(f)
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if f == nil {
			return nil
		}
		n.Stopped(next, f, nil)
		if !n.Again(s, f) {
			return f
		}
	}
}

// kill ends the launcher without a word.
func (n *elasticNode) kill() {
	n.dead = true
	n.alive.end(context.Canceled)
	n.stop()
	n.alive.beats.Stop()
	n.alive.watcher.Stop()
	n.watching.Stop()
	<-n.result
	n.result <- nil
}

// close lets the launchers leave that are there yet.
func (w *elasticWorld) close() {
	for _, n := range w.nodes {
		n.stop()
		<-n.result
		if !n.dead {
			n.Close()
		}
	}
}

// attempt waits until the nodes begin an attempt together, and checks their places.
func (w *elasticWorld) attempt(number, restarts int, nodes ...*elasticNode) []*Start {
	w.t.Helper()
	var all []*Start
	for i, n := range nodes {
		select {
		case s := <-n.started:
			ranks, first := 0, 0
			for k, m := range s.World {
				if ranks += m.Ranks; k < s.Node {
					first += m.Ranks
				}
			}
			if s.Attempt != number || s.Restarts != restarts || s.Node != i || ranks != 2*len(nodes) || first != 2*i ||
				s.Port != 1234 {
				w.t.Fatalf("%s begins with %+v, want attempt %d, restart %d, node %d of %d", n.name, *s, number, restarts, i,
					len(nodes))
			}
			all = append(all, s)
		case err := <-n.result:
			w.t.Fatalf("%s has ended: %v", n.name, err)
		case <-time.After(time.Hour):
			w.t.Fatalf("%s doesn't begin attempt %d", n.name, number)
		}
	}
	return all
}

func (w *elasticWorld) wantEnd(nodes []*elasticNode, check func(err error) bool) {
	w.t.Helper()
	for _, n := range nodes {
		err := <-n.result
		n.result <- err
		if !check(err) {
			w.t.Errorf("%s ends with %v", n.name, err)
		}
	}
}

func endedWell(err error) bool {
	e, without := errors.AsType[*EndedError](err)
	return err == nil || without && e.Failure == nil && e.Text == ""
}

// endedWith checks that an attempt, in which the node had a part, ended the job by a rank's exit status.
func endedWith(status int) func(error) bool {
	return func(err error) bool {
		e, without := errors.AsType[*EndedError](err)
		return without && e.Took && e.Failure.ExitStatus == status
	}
}

// about runs a function and checks how long that takes, in virtual time.
func about(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took < want || took > want+2*time.Second {
		t.Errorf("it took %s, want %s", took, want)
	}
}

func TestElasticBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // as many as there may be begin at once
		w := newElasticWorld(t, 1, 2)
		defer w.close()
		a, b := w.come(), w.come()
		about(t, 0, func() { w.attempt(0, 0, a, b) })
		a.do <- nil
		b.do <- nil
		w.wantEnd(w.nodes, endedWell)
	})
	synctest.Test(t, func(t *testing.T) { // fewer wait for more, from the time when they are enough
		w := newElasticWorld(t, 2, 3)
		defer w.close()
		a := w.come()
		time.Sleep(40 * time.Second)
		b := w.come()
		about(t, 30*time.Second, func() { w.attempt(0, 0, a, b) })
		c := w.come() // it's late: the attempt ends for it
		about(t, 0, func() { w.attempt(1, 0, a, b, c) })
		spare := w.come() // there's no place for this one
		time.Sleep(time.Minute)
		if len(a.started)+len(spare.started) > 0 {
			t.Error("an attempt begins for a node without a place")
		}
		for _, n := range []*elasticNode{a, b, c} {
			n.do <- nil
		}
		w.wantEnd(w.nodes, endedWell)
		launchtest.WantText(t, strings.Join(spare.said, "\n"), "the job has its 3 nodes: this one waits")
	})
	synctest.Test(t, func(t *testing.T) { // too few
		w := newElasticWorld(t, 2, 3)
		defer w.close()
		w.come()
		about(t, time.Minute, func() {
			w.wantEnd(w.nodes, func(err error) bool {
				return err.Error() == "launch: 1 node of at least 2 came within 1m0s"
			})
		})
	})
}

func TestElasticLoss(t *testing.T) {
	for victim := range 3 { // 0 is the one that leads
		synctest.Test(t, func(t *testing.T) {
			w := newElasticWorld(t, 1, 3)
			defer w.close()
			all := []*elasticNode{w.come(), w.come(), w.come()}
			w.attempt(0, 0, all...)
			all[victim].kill()
			left := slices.Delete(slices.Clone(all), victim, victim+1)
			about(t, 35*time.Second, func() { w.attempt(1, 0, left...) })
			// Another takes its place at once, at the end.
			left = append(left, w.come())
			about(t, 0, func() { w.attempt(2, 0, left...) })
			left[2].kill()
			left[1].kill()
			left[0].kill()
			// A launcher that comes then goes on with the job.
			about(t, 35*time.Second, func() { w.attempt(3, 0, w.come()) })
		})
	}
}

// A node is lost, and ranks fail because of that before it's missed: that doesn't count.
func TestElasticLossAndFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 1, 2)
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		b.kill()
		a.do <- &process.Failure{Kind: process.Exited, ExitStatus: 1}
		s := w.attempt(1, 0, a)[0]
		launchtest.WantText(t, strings.Join(s.News, "\n"), "node 1 of attempt 0 (host1, pid ", "its launcher has been silent since ",
			"starting 2 ranks on 1 node of 1:2, attempt 1, restart 0 of 0")
		a.do <- &process.Failure{Kind: process.Exited, ExitStatus: 7}
		w.wantEnd(w.nodes[:1], endedWith(7))
	})
}

func TestElasticFailuresCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 2, 4)
		w.job.MaxRestarts = 1
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		b.do <- &process.Failure{Kind: process.Signaled}
		about(t, 0, func() { w.attempt(1, 1, a, b) }) // there's no node to wait for
		c := w.come()
		w.attempt(2, 1, a, b, c)
		c.kill()
		w.attempt(3, 1, a, b)
		a.do <- &process.Failure{Kind: process.Exited, ExitStatus: 3}
		w.wantEnd([]*elasticNode{a, b}, endedWith(3))
	})
}

func TestElasticTooFewAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 2, 3)
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		a.kill()
		w.wantEnd([]*elasticNode{b}, func(err error) bool {
			text := err.Error()
			return strings.Contains(text, "1 node of at least 2 came within 1m0s after attempt 0: lost: node 0 (host0, pid ") &&
				strings.Contains(text, "its launcher has been silent since ")
		})
	})
}

// A node that leaves by a signal is no failure of the job.
func TestElasticLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 1, 2)
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		a.do <- &process.Failure{Kind: process.Interrupted}
		if f, ok := errors.AsType[*process.Failure](<-a.result); !ok || f.Kind != process.Interrupted {
			t.Errorf("got %v", f)
		}
		a.result <- nil
		a.Close()
		about(t, 30*time.Second, func() { w.attempt(1, 0, b) })
	})
}

// A launcher that stood still for so long that the others miss it has no part in the job any more.
func TestElasticStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 1, 2)
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		for _, n := range w.nodes[:1] {
			n.alive.beats.Stop()
			n.alive.watcher.Stop()
		}
		w.wantEnd([]*elasticNode{a}, func(err error) bool {
			f, ok := errors.AsType[*process.Failure](err)
			return ok && f.Kind == process.NodeLost && f.Node == 0
		})
		w.attempt(1, 0, b)
	})
}

// The store may be silent for a while, which loses no node, but not for long.
func TestElasticStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElasticWorld(t, 1, 2)
		defer w.close()
		a, b := w.come(), w.come()
		w.attempt(0, 0, a, b)
		w.down.Store(true)
		time.Sleep(8 * time.Second)
		w.down.Store(false)
		time.Sleep(time.Minute)
		if len(a.started)+len(b.started)+len(a.result)+len(b.result) > 0 {
			t.Fatal("the job didn't go on as it was")
		}
		w.down.Store(true)
		w.wantEnd(w.nodes, func(err error) bool {
			f, ok := errors.AsType[*process.Failure](err)
			return ok && strings.Contains(f.Error(),
				"the store where the nodes meet, hash:, has not answered its launcher since ")
		})
	})
}

// TestElasticRandom has nodes come and die, and ranks fail, at random times. All nodes of an attempt see the same one,
// of a permitted size, and in the end the nodes that are left finish.
func TestElasticRandom(t *testing.T) {
	for seed := range testutil.Pick(5, 40) {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		least := 1 + r.IntN(3)
		most := least + 1 + r.IntN(2)
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("seed", seed)
				}
			}()
			w := newElasticWorld(t, least, most)
			w.job.MaxRestarts, w.job.JoinTimeout = 100, time.Hour
			defer w.close()
			for range least {
				w.come()
			}
			dead := 0
			for range 1 + r.IntN(12) {
				time.Sleep(time.Duration(r.IntN(50_000)) * time.Millisecond)
				n := w.nodes[r.IntN(len(w.nodes))]
				switch what := r.IntN(3); {
				case what == 0:
					w.come()
				case what == 1 && !n.dead:
					dead++
					n.kill()
				case what == 2:
					select {
					case n.do <- &process.Failure{Kind: process.Exited, ExitStatus: 1}:
					default:
					}
				}
			}
			for len(w.nodes)-dead < least {
				w.come()
			}
			time.Sleep(5 * time.Minute) // nothing changes any more
			worlds := map[int]string{}
			for _, n := range w.nodes {
				var last *Start
				for len(n.started) > 0 {
					last = <-n.started
					text := fmt.Sprint(last.World)
					if before := worlds[last.Attempt]; before != "" && before != text {
						t.Fatalf("attempt %d has the worlds %s and %s", last.Attempt, before, text)
					}
					worlds[last.Attempt] = text
					if len(last.World) < least || len(last.World) > most {
						t.Fatalf("a world of %d nodes", len(last.World))
					}
				}
			}
			finished := 0
			for _, n := range w.nodes {
				select {
				case n.do <- nil:
					finished++
				default:
				}
			}
			if want := min(most, len(w.nodes)-dead); finished != want {
				t.Fatalf("%d nodes run, of %d, %d of them dead; want %d", finished, len(w.nodes), dead, want)
			}
			for _, n := range w.nodes {
				if !n.dead {
					w.wantEnd([]*elasticNode{n}, endedWell)
				}
			}
		})
	}
}

// FuzzElasticRecords has another launcher write anything into the store: that is an error, or makes a world.
func FuzzElasticRecords(f *testing.F) {
	job := &Config{Nodes: 2, MinNodes: 1, RanksPerNode: 1, RunID: "r", Store: "hash:", Monitor: time.Millisecond,
		JoinTimeout: 50 * time.Millisecond, LostAfter: 20 * time.Millisecond, LastCall: time.Millisecond}
	terms, _ := json.Marshal(job.settings())
	other, _ := json.Marshal(entry{Member: Member{Host: "h", Pid: 1, Ranks: 3}})
	both, _ := json.Marshal(world{IDs: []int{0, 1}, Nodes: []Member{{Ranks: 3}, {Ranks: 1}}})
	failure, _ := json.Marshal(process.Failure{Kind: process.Exited})
	ended, _ := json.Marshal(EndedError{Text: "why"})
	f.Add(terms, other, both, failure, ended)
	f.Add(terms, other, []byte(nil), []byte(nil), []byte(nil))
	f.Add(terms, []byte(`{"Ranks":-1}`), []byte(`{"IDs":[7],"Nodes":[{"Ranks":1}]}`), []byte("{}"), []byte(nil))
	f.Add([]byte("{}"), []byte("["), []byte("{}"), []byte("["), []byte("["))
	f.Fuzz(func(t *testing.T, terms, other, world, failure, ended []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		h := store.NewHash(time.Second)
		defer h.Close()
		own := *job
		rv := newRendezvous(&own, "here")
		rv.store = store.NewPrefix(rv.prefix(), h)
		rv.serve = func(string, int) (listening, error) { return noStore{}, nil }
		set := func(key string, value []byte) {
			if len(value) > 0 {
				if err := rv.store.Set(ctx, key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		set("job", terms)
		set(entryKey(0), other)
		e, err := newElastic(ctx, rv, func(string, ...any) {})
		if err != nil {
			return
		}
		defer e.Close()
		set(worldKey(0), world)
		set(attemptKey(0, "failure"), failure)
		set("ended", ended)
		s, err := e.Begin(ctx, 0)
		e.watching.Stop()
		if err == nil {
			if s.Node < 0 || s.Node >= len(s.World) || s.World[s.Node].Ranks < 1 {
				t.Fatalf("%+v", s)
			}
		}
	})
}
