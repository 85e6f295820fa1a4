package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
)

// runner is a Job that runs.
type runner struct {
	job     *Job
	console *process.Console
	spawner *process.Spawner
	guard   *process.Guard
	peers   rendezvous.Peers
	host    string          // name of this host
	node    int             // place of this node
	places  []process.Place // of the ranks of this node; nil before the first attempt
	bound   []bound         // what they are bound to; nil: nothing
	logDir  string          // of this run
	records *records
	scratch string   // for error files; removed at the end
	lock    *os.File // on scratch, as long as this process lives; nil where there are no locks
	secret  string   // where ranks read the secret that this launcher hands to them; empty: none
	kept    *os.File // its memory; nil if it's a file in scratch
	missed  missed   // nodes
}

// missed are the nodes whose loss has been explained.
type missed struct {
	mu    sync.Mutex
	nodes map[int]bool
}

// first reports whether it's called for a node for the first time.
func (m *missed) first(node int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[node] {
		return false
	}
	if m.nodes == nil {
		m.nodes = map[int]bool{}
	}
	m.nodes[node] = true
	return true
}

// forget makes nodes of the next attempt, which may have other numbers, be explained again.
func (m *missed) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = nil
}

func (j *Job) newRunner(ctx context.Context) (r *runner, err error) {
	r = &runner{job: j, console: &process.Console{Out: j.Stdout, Err: j.Stderr, Name: j.Name}}
	if r.host, err = os.Hostname(); err != nil {
		r.host = "localhost"
	}
	process.SweepScratch(os.TempDir())
	if r.scratch, r.lock, err = process.MakeScratch(os.TempDir()); err != nil {
		return nil, fmt.Errorf("launch: %w", ifFull(err, os.TempDir()))
	}
	if err := r.open(ctx); err != nil {
		r.records.close(true, j.RunID, "") // of no ranks
		r.close()
		return nil, err
	}
	return r, nil
}

// open makes what the runner needs; close undoes it, also when only part of it was made.
func (r *runner) open(ctx context.Context) (err error) {
	j := r.job
	if j.LogDir != "" {
		if r.logDir, err = filepath.Abs(filepath.Join(j.LogDir, j.RunID)); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		if err = os.MkdirAll(r.logDir, 0o777); err != nil {
			return fmt.Errorf("launch: log directory: %w", ifFull(err, j.LogDir))
		}
	}
	if err = r.keep(); err != nil {
		return fmt.Errorf("launch: %w", ifFull(err, r.scratch))
	}
	if r.records, err = openRecords(j.Records, newLabel(j.RunID, j.Command), j.dumps()); err != nil {
		r.console.Printf("what the ranks do is not recorded: %v", ifFull(err, j.Records))
	}
	r.sayFull()
	if r.guard, err = process.StartGuard(j.Guard, r.scratch); err != nil {
		return err
	}
	r.spawner = process.NewSpawner(j.Adopt)

	cfg := j.config()
	if j.Nodes == 1 {
		r.peers = rendezvous.NewSingleNode(cfg, r.host)
		return nil
	}
	r.node = max(j.NodeRank, 0)
	waiting, stop := j.untilSignal(ctx, r.node, r.host)
	if j.elastic() {
		r.peers, err = rendezvous.JoinElastic(waiting, cfg, r.host, r.console.Printf)
	} else {
		peers, node, failed := rendezvous.Join(waiting, cfg, r.host, r.console.Printf, r.explain)
		if err = failed; err == nil {
			r.peers, r.node = peers, node
		}
	}
	return r.interrupted(stop(), 0, err)
}

// placed takes the places of this node's ranks in an attempt. The first time it binds the ranks, which doesn't depend on
// the world.
func (r *runner) placed(s *rendezvous.Start) error {
	first := r.places == nil
	r.node, r.places = s.Node, places(s.World, s.Node)
	if !first {
		return nil
	}
	if err := r.bindings(); err != nil {
		return err
	}
	r.sayThreads()
	return nil
}

// close gives back everything; the ranks are dead.
func (r *runner) close() {
	if r.peers != nil {
		r.peers.Close()
	}
	r.endLeftovers()
	if r.spawner != nil {
		r.spawner.Close()
	}
	r.guard.Close()
	r.unkeep()
	os.RemoveAll(r.scratch)
	r.lock.Close() // a nil file only says so
}

// endLeftovers ends what ranks that are dead have left behind.
func (r *runner) endLeftovers() {
	var adopted func(pid int) bool
	if r.spawner != nil && r.spawner.Reaping != nil {
		adopted = func(pid int) bool { return pid != r.guard.Pid() }
	}
	process.EndLeftovers(r.scratch, adopted)
}

// run makes attempts until one succeeds or no more are allowed.
func (r *runner) run(ctx context.Context) (err error) {
	defer func() { r.records.close(err == nil, r.job.RunID, r.job.dumps()) }()
	for attempt := 0; ; attempt++ {
		waiting, stop := r.job.untilSignal(ctx, r.node, r.host)
		s, err := r.peers.Begin(waiting, attempt)
		if s == nil {
			s = &rendezvous.Start{Attempt: attempt, Restarts: attempt, Node: r.node}
		}
		attempt = s.Attempt
		err = r.interrupted(stop(), attempt, err)
		f, over := err.(*Failure) // over before it began here, by a failure on another node or a signal
		if ended, without := errors.AsType[*rendezvous.EndedError](err); without {
			return r.endedWithout(ended)
		}
		if err != nil && !over {
			return err
		}
		if s.World != nil {
			if err := r.placed(s); err != nil {
				return err
			}
		}
		if over {
			r.report(s, f, "", time.Time{})
		} else {
			f = r.runAttempt(ctx, s)
		}
		if f == nil {
			return r.console.Failure()
		}
		if !r.peers.Again(s, f) {
			return f
		}
		if r.job.elastic() {
			r.missed.forget()
		} else if r.speaks() {
			r.console.Printf("restarting all ranks: restart %d of %d", attempt+1, r.job.MaxRestarts)
		}
	}
}

// endedWithout returns how the job has ended in which this node had no part at the end.
func (r *runner) endedWithout(e *rendezvous.EndedError) error {
	switch {
	case e.Failure != nil:
		if !e.Took {
			r.explain(e.Failure)
		}
		return e.Failure
	case e.Text != "":
		return e
	}
	r.console.Printf("the job has ended well, without this node")
	return r.console.Failure()
}

// attempt is the state of one attempt on this node. Its methods run on one goroutine.
type attempt struct {
	*runner
	number int
	start  *rendezvous.Start
	exits  chan process.Exit
	alive  map[*process.Process]bool
	ended  []process.Exit // in order of time

	begun    time.Time
	signaled bool   // a signal that ends the job has come here
	dumps    string // where the ranks record what they do; empty: nowhere
	lost     int    // ranks that have failed while the others went on
	linger   lingering
	failure  *Failure  // the first one, once there is one
	asked    time.Time // when the ranks were asked to stop
	grace    <-chan time.Time
	killed   map[*process.Process]bool
}

// runAttempt runs the ranks of this node once and returns the failure that ended the attempt, which it has explained.
func (r *runner) runAttempt(ctx context.Context, s *rendezvous.Start) *Failure {
	number := s.Attempt
	for _, text := range s.News {
		if r.speaks() {
			r.console.Printf("%s", text)
		}
	}
	a := &attempt{
		runner: r, number: number, start: s, begun: time.Now(),
		exits: make(chan process.Exit, len(r.places)),
		alive: map[*process.Process]bool{}, killed: map[*process.Process]bool{},
		dumps: cmp.Or(r.records.attemptDir(number), r.job.dumps()),
	}
	if r.job.Recording != nil {
		r.job.Recording(a.dumps)
	}
	at, err := r.job.relayStore(s.Addr, s.Port)
	if err != nil {
		a.fail(r.notStarted(r.places[0], number, err))
	} else {
		defer at.close()
	}
	for _, p := range r.places {
		if a.failure != nil {
			break
		}
		proc, err := r.startProcess(p, s, at)
		if err != nil {
			a.fail(r.notStarted(p, number, err))
			break
		}
		a.alive[proc] = true
		go proc.Wait(a.exits, r.guard)
	}
	a.watch(ctx)
	if len(a.ended) > 0 {
		r.endLeftovers()
	}
	for _, e := range a.ended {
		e.Process.Drain()
	}
	if a.failure == nil {
		return nil
	}
	a.summarize()
	r.report(s, a.failure, a.dumps, a.begun)
	return a.failure
}

// watch returns when the ranks of this node are dead and the outcome of the attempt is known.
func (a *attempt) watch(ctx context.Context) {
	done := ctx.Done()
	told := false // the peers know that this node's ranks have finished well
	for {
		if len(a.alive) == 0 {
			if a.failure != nil {
				return
			}
			if !told {
				a.peers.Finished(a.number)
				told = true
			}
		}
		select {
		case e := <-a.exits:
			a.exited(e)
		case f := <-a.peers.News():
			if f == nil {
				return
			}
			if a.failure == nil {
				a.record()
				a.stop(f.StopsBy())
				a.explain(f)
			}
		case sig := <-a.job.Signals:
			a.signal(sig.(syscall.Signal))
		case <-done:
			done = nil
			a.canceled(context.Cause(ctx))
		case <-a.grace:
			if len(a.killed) > 0 {
				a.console.Printf("%s cannot be killed: the kernel does not let go of it; still trying", ranksOf(a.alive))
			}
			a.kill()
		case <-a.linger.look:
			a.look()
		}
	}
}

// exited notes the end of a rank, and of those that ended at about the same time. The first of them that failed is the
// one to explain: it's likely the cause of the others' failures.
func (a *attempt) exited(e process.Exit) {
	batch := []process.Exit{e}
	for len(a.exits) > 0 {
		batch = append(batch, <-a.exits)
	}
	slices.SortFunc(batch, func(x, y process.Exit) int { return x.At.Compare(y.At) })
	var first *process.Exit
	for i, e := range batch {
		delete(a.alive, e.Process)
		_, given := a.linger.given[e.Process]
		switch {
		case e.OK() || given || first != nil:
		case a.failure == nil && a.lost < a.job.MayLose:
			a.lost++
			a.console.Printf("%v; the others go on without it", a.runner.failure(e, a.number))
		default:
			first = &batch[i]
		}
	}
	a.ended = append(a.ended, batch...)
	if first != nil && a.failure == nil {
		a.record()
		a.stop(syscall.SIGTERM)
		a.fail(a.runner.failure(*first, a.number))
	}
	a.linger.since = batch[len(batch)-1].At
	a.lingers()
}

// signal handles a signal that the launcher received.
func (a *attempt) signal(sig syscall.Signal) {
	ends := sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2
	defer func() { a.signaled = a.signaled || ends }()
	switch {
	case !ends:
		a.pass(sig)
	case sig == syscall.SIGPIPE && a.failure != nil: // one comes for every write
	case a.failure != nil && a.failure.Kind == Interrupted && a.failure.Node != a.node && !a.signaled:
		// The same signal, perhaps, by which another node's launcher has ended the job: it asks for no haste.
		if sig != a.failure.StopsBy() { // which the ranks have already
			a.pass(sig)
		}
	case a.failure != nil: // the job is stopping already, and this signal asks for more haste
		a.kill()
	default:
		pass := sig
		if sig == syscall.SIGPIPE { // about the launcher's output; it means nothing to the ranks
			pass = syscall.SIGTERM
		}
		a.stop(pass)
		a.fail(&Failure{Kind: Interrupted, Attempt: a.number, Node: a.node, Host: a.host, Signal: sig})
	}
}

// canceled handles the end of Run's context. If its cause is a failure, that is the job's.
func (a *attempt) canceled(cause error) {
	f, told := errors.AsType[*Failure](cause)
	if !told || a.failure != nil {
		a.signal(syscall.SIGTERM)
		return
	}
	failure := *f
	failure.Attempt = a.number
	a.record()
	a.stop(failure.StopsBy())
	a.fail(&failure)
}

// pass passes a signal on to the ranks.
func (a *attempt) pass(sig syscall.Signal) {
	for p := range a.alive {
		p.Signal(sig)
	}
}

// stop asks the ranks to end.
func (a *attempt) stop(sig syscall.Signal) {
	a.asked = time.Now()
	a.grace = time.After(a.job.Grace)
	a.pass(sig)
	a.pass(syscall.SIGCONT) // a stopped process notices nothing else
}

// kill ends the ranks that are left. They may still take a moment, or long if they hang in the kernel.
func (a *attempt) kill() {
	a.grace = time.After(a.job.Grace)
	for p := range a.alive {
		a.killed[p] = true
		p.Signal(syscall.SIGKILL)
	}
}

// fail tells the peers of a failure of this node and explains the first one that there was.
func (a *attempt) fail(f *Failure) {
	if a.asked.IsZero() {
		a.stop(syscall.SIGTERM)
	}
	a.explain(a.peers.Failed(f))
}

// explain remembers the first failure and says what went wrong, as soon as it is known.
func (a *attempt) explain(f *Failure) {
	a.failure = f
	a.runner.explain(f)
	if len(a.alive) > 0 {
		a.console.Printf("stopping %s", ranksOf(a.alive))
	}
}

// explain says what went wrong; of a node that is lost only once, though it's seen to be so before it ends the attempt,
// or after something else has.
func (r *runner) explain(f *Failure) {
	if f.Kind == NodeLost && !r.missed.first(f.Node) || f.Told || !r.says(f) {
		return
	}
	var b strings.Builder
	b.WriteString(f.Error())
	if f.Message != "" {
		fmt.Fprintf(&b, "\nits error: %s", strings.ReplaceAll(f.Message, "\n", "\n  "))
	}
	if len(f.Stderr) > 0 {
		b.WriteString("\nthe last it wrote to standard error:")
		for _, line := range f.Stderr {
			b.WriteString("\n  | " + line)
		}
	}
	r.console.Printf("%s", b.String())
}

// speaks reports whether it's for this launcher to say what all launchers of the job know.
func (r *runner) speaks() bool { return r.job.Name == "" || r.node == 0 }

// says reports whether it's for this launcher to explain a failure: where several have one console, one does. Of a node
// that is lost the others speak, the first of them.
func (r *runner) says(f *Failure) bool {
	speaker := f.Node
	if f.Kind == NodeLost {
		speaker = 0
		if f.Node == 0 {
			speaker = 1
		}
	}
	return r.job.Name == "" || r.node == speaker
}

// summarize says what became of the other ranks of this node.
func (a *attempt) summarize() {
	var stopped, killed, failed, finished []int
	for _, e := range a.ended {
		own := a.failure.Node == a.node && a.failure.Rank == e.Process.Rank &&
			(a.failure.Kind == Exited || a.failure.Kind == Signaled)
		switch {
		case own:
		case a.killed[e.Process]:
			killed = append(killed, e.Process.Rank)
		case e.At.After(a.asked):
			stopped = append(stopped, e.Process.Rank)
		case e.OK():
			finished = append(finished, e.Process.Rank)
		default:
			failed = append(failed, e.Process.Rank)
		}
	}
	var parts []string
	for _, part := range []struct {
		what  string
		ranks []int
	}{
		{"stopped %s", stopped},
		{"killed %s", killed},
		{"%s had failed as well", failed},
		{"%s had finished", finished},
	} {
		if len(part.ranks) > 0 {
			parts = append(parts, fmt.Sprintf(part.what, wire.NamedRanks(part.ranks)))
		}
	}
	if len(parts) > 0 {
		a.console.Printf("%s", strings.Join(parts, "; "))
	}
}

func ranksOf(set map[*process.Process]bool) string {
	var ranks []int
	for p := range set {
		ranks = append(ranks, p.Rank)
	}
	return wire.NamedRanks(ranks)
}
