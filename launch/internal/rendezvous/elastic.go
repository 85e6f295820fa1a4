package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// elastic is the rendezvous of a job whose nodes may change. Each launcher has an id, its number by arrival, as long as
// it lives. Each attempt has a world, some of the launchers. Besides the keys of an attempt ([rendezvous]) there are:
//
//	job              what all must agree on
//	launcher/I       the entry of launcher I, which only that one writes
//	here/I           never written; launcher I waits for it, where another launcher serves the store
//	lost/I           why launcher I counts as lost; written once, by compare-and-set
//	attempt/A/world  the nodes of an attempt; written once, by compare-and-set
//	ended            how the job has ended; written once, by compare-and-set
//
// Each launcher's entry names the attempt that it's ready for. The launcher waits until that attempt has a world, with
// it or without. The launcher with the lowest id of those that are left decides when the attempt begins ([leader]).
// Where a launcher serves the store, it's that one.
type elastic struct {
	*rendezvous
	say func(format string, args ...any)

	ids []int // of the world of the attempt

	mu      sync.Mutex
	mine    entry
	entered int // the attempt in which this node has a part; -1: none yet

	leader *leader
}

// entry describes a launcher and its state to the others.
type entry struct {
	Member
	Beat  int64 // keeps growing while the launcher is alive
	Ready int   // the attempt that its ranks could be started for; -1: none yet
	Left  bool  // it has left the job
}

// world is the nodes of an attempt.
type world struct {
	IDs      []int
	Nodes    []Member // of these ids
	Restarts int      // failures so far that count against MaxRestarts
	Gone     []string // what became of nodes of the attempt before, where its failure doesn't say it
}

// EndedError says how the job has ended, to launchers that had no part in its last attempt, or whose part was over.
type EndedError struct {
	Failure *process.Failure // nil: none
	Text    string           // why there's no further attempt; empty: the job has ended well, or with Failure
	Took    bool             // this launcher had a part in the attempt that failed, and has explained it
}

func (e *EndedError) Error() string {
	switch {
	case e.Failure != nil:
		return e.Failure.Error()
	case e.Text == "":
		return "launch: the job has ended well"
	}
	return "launch: " + e.Text
}

func entryKey(n int) string { return fmt.Sprintf("launcher/%d", n) }
func lostKey(n int) string  { return fmt.Sprintf("lost/%d", n) }
func worldKey(a int) string { return attemptKey(a, "world") }
func decode[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// JoinElastic connects to where the launchers meet, and registers this one.
func JoinElastic(ctx context.Context, j *Config, host string, say func(string, ...any)) (Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, j.JoinTimeout)
	defer cancel()
	rv := newRendezvous(j, host)
	connect := rv.connect
	if j.Store != "" {
		connect = rv.openStore
	}
	if err := connect(ctx); err != nil {
		return nil, err
	}
	e, err := newElastic(ctx, rv, say)
	if err != nil {
		rv.closeStores()
		return nil, err
	}
	return e, nil
}

// openStore connects to the user's store where the launchers meet.
func (rv *rendezvous) openStore(ctx context.Context) error {
	st, err := store.Open(ctx, rv.job.Store, store.OpenOptions{Security: &rv.job.Security})
	if err != nil {
		return fmt.Errorf("launch: cannot open the store where the nodes meet: %w", err)
	}
	// Others may write there, who don't know the secret.
	sealed := store.NewSealed(rv.job.Security.Secret, st)
	rv.base, rv.endpoint, rv.store = st, rv.job.Store, store.NewPrefix(rv.prefix(), sealed)
	return nil
}

// newElastic registers this launcher in a rendezvous that is connected.
func newElastic(ctx context.Context, rv *rendezvous, say func(string, ...any)) (*elastic, error) {
	e := &elastic{rendezvous: rv, say: say, entered: -1, mine: entry{Member: rv.job.member(rv.host), Ready: -1}}
	rv.kind = e
	me, err := e.register(ctx)
	if err != nil {
		return nil, err
	}
	rv.Node = max(rv.job.NodeRank, 0) // until there is a world
	v := rv.newLiveness(me, func(*process.Failure) {})
	every := rv.job.beats()
	if rv.job.Store != "" {
		v.patience = 2 * rv.job.LostAfter
	}
	v.beats = process.Tick(every, v.beat)
	if rv.server == nil && rv.job.Store == "" {
		v.tasks.Go(v.hold)
		return e, nil
	}
	every = min(every, rv.job.Monitor)
	e.leader = newLeader(e, every)
	v.watcher = process.Tick(every, e.leader.tick)
	return e, nil
}

// register agrees on the settings, and claims the lowest id that no launcher has had.
func (e *elastic) register(ctx context.Context) (me int, err error) {
	j := e.job
	fail := func(err error) (int, error) {
		return 0, fmt.Errorf("launch: rendezvous at %s: %w", e.endpoint, err)
	}
	terms := j.settings()
	terms.Host = e.host
	text, _ := json.Marshal(terms)
	if j.Store != "" {
		if _, err := e.store.CompareSet(ctx, "job", nil, text); err != nil {
			return fail(err)
		}
	}
	if e.server == nil {
		if err := e.agree(ctx); err != nil {
			return 0, err
		}
		if there, err := e.store.Check(ctx, "ended"); err != nil {
			return fail(err)
		} else if there {
			return 0, fmt.Errorf("launch: job %q has ended already: another one needs another name", j.RunID)
		}
	}
	mine, _ := json.Marshal(e.mine)
	for ; ; me++ {
		if there, err := e.store.Check(ctx, entryKey(me)); err != nil {
			return fail(err)
		} else if there {
			continue
		}
		held, err := e.store.CompareSet(ctx, entryKey(me), nil, mine)
		if err != nil {
			return fail(err)
		}
		if string(held) == string(mine) {
			break
		}
	}
	if e.server != nil { // the others come in now
		err = e.store.Set(ctx, "job", text)
	}
	return me, err
}

// publish changes this launcher's entry.
func (e *elastic) publish(ctx context.Context, change func(*entry)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.mine)
	text, _ := json.Marshal(e.mine)
	return e.store.Set(ctx, entryKey(e.alive.me), text)
}

// Begin implements [Peers].
func (e *elastic) Begin(ctx context.Context, next int) (*Start, error) {
	for said := false; ; next++ {
		err := e.insist(func(ctx context.Context) error {
			return e.publish(ctx, func(s *entry) { s.Ready = next })
		})
		var w world
		if err == nil {
			w, err = e.awaitWorld(ctx, next)
		}
		if f := e.alive.loss(next); err != nil && f != nil {
			return nil, f
		}
		if err != nil {
			return nil, err
		}
		i := slices.Index(w.IDs, e.alive.me)
		if i >= 0 {
			return e.enterWorld(ctx, next, i, w)
		}
		// Attempts of long ago are passed over in silence.
		if !said && len(w.IDs) == e.job.Nodes {
			if over, _ := e.store.Check(ctx, attemptKey(next, "failure")); !over {
				said = true
				e.say("the job has its %d nodes: this one waits until another is lost", e.job.Nodes)
			}
		}
	}
}

// awaitWorld waits until an attempt has a world.
func (e *elastic) awaitWorld(ctx context.Context, attempt int) (world, error) {
	bad := func(err error) (world, error) {
		return world{}, fmt.Errorf("launch: rendezvous at %s: attempt %d: %w", e.endpoint, attempt, err)
	}
	for {
		there, err := e.store.Check(ctx, worldKey(attempt))
		if err == nil && there {
			var data []byte
			if data, err = e.store.Get(ctx, worldKey(attempt)); err == nil {
				w, err := decode[world](data)
				if err == nil {
					err = w.check(e.job)
				}
				if err != nil {
					return bad(err)
				}
				return w, nil
			}
		}
		for _, key := range []string{"ended", lostKey(e.alive.me)} {
			var over bool
			if err != nil || there {
				break
			}
			if over, err = e.store.Check(ctx, key); over && err == nil {
				return world{}, e.readEnd(ctx, key)
			}
		}
		if err != nil && ctx.Err() == nil && !e.alive.tolerates() {
			e.alive.noAnswer(err)
			return bad(err)
		}
		if !process.Sleep(ctx, e.job.Monitor) {
			return bad(context.Cause(ctx))
		}
		if e.alive.reach().Err() != nil {
			return bad(context.Cause(e.alive.reach()))
		}
	}
}

// check refuses a world that can't be.
func (w *world) check(j *Config) error {
	if len(w.IDs) != len(w.Nodes) || len(w.Nodes) < j.MinNodes || len(w.Nodes) > j.Nodes {
		return fmt.Errorf("a world of %d nodes and %d launchers", len(w.Nodes), len(w.IDs))
	}
	ranks := 0
	for _, n := range w.Nodes {
		if n.Ranks < 1 || n.Ranks > maxRanks {
			return fmt.Errorf("a node with %d ranks", n.Ranks)
		}
		ranks += n.Ranks
	}
	if ranks > bootstrap.MaxRanks {
		return fmt.Errorf("%d ranks are a larger world than the largest, of %d", ranks, bootstrap.MaxRanks)
	}
	return nil
}

// readEnd returns why there's no further attempt for this node.
func (e *elastic) readEnd(ctx context.Context, key string) error {
	data, err := e.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("launch: rendezvous at %s: %w", e.endpoint, err)
	}
	if key != "ended" {
		return fmt.Errorf("launch: this node counts as lost for the others: %s", data)
	}
	end := new(EndedError)
	if err := json.Unmarshal(data, end); err != nil {
		return fmt.Errorf("launch: rendezvous at %s: the job has ended, but not legibly: %w", e.endpoint, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	end.Took = end.Failure != nil && end.Failure.Attempt == e.entered
	return end
}

// enterWorld begins an attempt as node i of its world.
func (e *elastic) enterWorld(ctx context.Context, attempt, i int, w world) (*Start, error) {
	e.Node, e.world, e.ids, e.first = i, w.Nodes, w.IDs, i == 0
	e.alive.node.Store(int64(i))
	e.mu.Lock()
	e.entered = attempt
	e.mu.Unlock()
	if !e.first && e.ranks != nil {
		e.ranks.Close()
		e.ranks = nil
	}
	s := &Start{Attempt: attempt, Restarts: w.Restarts, World: w.Nodes, Node: i, News: w.Gone}
	ranks := 0
	for _, n := range w.Nodes {
		ranks += n.Ranks
	}
	what := fmt.Sprintf("starting %s on %s of %d:%d", counted(ranks, "rank"), counted(len(w.Nodes), "node"),
		e.job.MinNodes, e.job.Nodes)
	if attempt > 0 {
		what += fmt.Sprintf(", attempt %d, restart %d of %d", attempt, w.Restarts, e.job.MaxRestarts)
	}
	s.News = append(s.News, what)
	return s, e.enterAttempt(ctx, s)
}

// counted is a number of things.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Failed implements [Peers]. Before this node has a part in an attempt, what happens to it is no failure of that.
func (e *elastic) Failed(f *process.Failure) *process.Failure {
	e.mu.Lock()
	entered := e.entered == f.Attempt
	e.mu.Unlock()
	if !entered {
		return f
	}
	return e.rendezvous.Failed(f)
}

// Again implements [Peers]. A node that leaves, or that the others miss, begins no other attempt.
func (e *elastic) Again(_ *Start, f *process.Failure) bool {
	ends := f.Node == e.Node || f.Node == 0 && e.job.Store == "" // the launcher of node 0 serves the rendezvous
	if ends && (f.Kind == process.Interrupted || f.Kind == process.NodeLost) {
		return false
	}
	return e.alive.loss(0) == nil
}

// end writes how the job ends, unless that's written.
func (e *elastic) end(how *EndedError) {
	text, _ := json.Marshal(how)
	e.insist(func(ctx context.Context) error {
		_, err := e.store.CompareSet(ctx, "ended", nil, text)
		return err
	})
}

// beat implements kind.
func (e *elastic) beat(ctx context.Context, beats int64) error {
	return e.publish(ctx, func(s *entry) { s.Beat = beats })
}

// over implements kind.
func (e *elastic) over() { e.end(&EndedError{}) }

// lost implements kind: of a node of the attempt that has left or is lost.
func (e *elastic) lost(node int) bool {
	if node >= len(e.ids) {
		return false
	}
	ctx, cancel := e.withLimit()
	defer cancel()
	gone, err := e.store.Check(ctx, lostKey(e.ids[node]))
	return gone && err == nil
}

// Close implements [Peers]. The launcher that serves ends the job with it.
func (e *elastic) Close() {
	e.watching.Stop()
	v := e.alive
	if e.server != nil {
		e.end(&EndedError{Text: fmt.Sprintf("the launcher on %s, where the nodes met, has left the job", e.host)})
	}
	ctx, cancel := e.withLimit()
	e.publish(ctx, func(s *entry) { s.Left = true })
	cancel()
	v.beats.Stop()
	v.watcher.Stop()
	if e.server != nil {
		patience := time.Now().Add(2*e.job.Grace + process.DrainTime)
		for e.leader.others() && time.Now().Before(patience) && process.Sleep(v.ctx, e.job.Monitor) {
			e.leader.tick()
		}
	}
	v.end(context.Canceled)
	v.tasks.Wait()
	e.closeStores()
}
