package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/store"
)

// rendezvous is what those of all jobs with several nodes have. The launchers meet in a store that the first one serves:
//
//	job                   what all must agree on, from the launcher that serves
//	node/N                the member that is node N; written once, by compare-and-set
//	refused               why the job cannot begin
//	beat/N                a number that node N keeps raising while it is alive
//	here/N                never written; node N waits for it, unless it serves
//	left/N                node N has left the job
//	attempt/A/store       the address of the attempt's own store, which the serving launcher serves too
//	attempt/A/failure     the first failure of the attempt; written once, by compare-and-set
//	attempt/A/finished/N  node N's ranks have finished well
//	attempt/A/record/R    what rank R has recorded, in an attempt that has failed
//	attempt/A/stopped/N   node N's ranks are dead; which of them have left records
//	attempt/A/explained   what the records of all ranks tell
type rendezvous struct {
	job      *Config
	endpoint string
	Node     int
	world    []Member

	server *store.TCPServer // of the rendezvous; nil unless this launcher serves
	store  *store.PrefixStore
	base   store.Store // below store, to be closed; nil if this launcher serves
	terms  *terms      // where launchers say what they differ in; nil in a store of the user's
	ranks  listening   // of the current attempt; nil unless this launcher serves it

	alive      *liveness        // over the other launchers; nil until all have come
	watching   *process.Ticking // news of the current attempt
	events     chan *process.Failure
	serverPos  int // the node that serves
	serverHost string
	host       string // this one

	kind  kind
	first bool                                           // this launcher serves the attempt's store, and examines records
	serve func(host string, port int) (listening, error) // serves the store of an attempt
}

// kind is what the rendezvous of jobs differ in: those of a fixed one, and of an elastic one.
type kind interface {
	beat(ctx context.Context, beats int64) error // says that this launcher is alive
	lost(node int) bool                          // whether a node is lost
	over()                                       // all ranks have finished well
}

// listening is a store that is served.
type listening interface {
	Port() int
	Close() error
}

// maxRanks is more than a node has, so that sums of such numbers make sense.
const maxRanks = 1 << 20

// reconnectTime is how long a launcher tries to reach the rendezvous again after its connection broke and is refused.
const reconnectTime = 500 * time.Millisecond

func newRendezvous(j *Config, host string) *rendezvous {
	return &rendezvous{job: j, endpoint: j.Endpoint, host: host, events: make(chan *process.Failure, 1),
		serve: func(host string, port int) (listening, error) { return j.serve(host, port) }}
}

// prefix is that of the job's keys.
func (rv *rendezvous) prefix() string { return "chorus/" + rv.job.RunID }

// enterAttempt fills in where the store of an attempt is. The error is a *Failure if the attempt has failed.
func (rv *rendezvous) enterAttempt(ctx context.Context, s *Start) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rv.job.JoinTimeout)
	defer cancel()
	s.Addr, s.Port, err = rv.findStore(ctx, s.Attempt)
	if f := rv.alive.loss(s.Attempt); err != nil && f != nil {
		return rv.Failed(f)
	}
	return err
}

// findStore does the work of enterAttempt, for which a node that is lost is like any other error.
func (rv *rendezvous) findStore(ctx context.Context, attempt int) (string, int, error) {
	if rv.first {
		if err := rv.open(ctx, attempt); err != nil {
			return "", 0, err
		}
	}
	key := attemptKey(attempt, "store")
	err := rv.poll(ctx, time.Time{}, attemptKey(attempt, "failure"), []string{key})
	var addr []byte
	if err == nil {
		addr, err = rv.store.Get(ctx, key)
	}
	if refusal := (*refusedError)(nil); errors.As(err, &refusal) {
		return "", 0, decodeFailure(refusal.value)
	}
	if err != nil {
		return "", 0, fmt.Errorf("launch: node %d does not begin attempt %d: %w", rv.serverPos, attempt, err)
	}
	host, portText, err := net.SplitHostPort(string(addr))
	port, perr := strconv.Atoi(portText)
	if err = errors.Join(err, perr); err == nil && (host == "" || port < 1 || port > 65535) {
		err = fmt.Errorf("%q is no address", addr)
	}
	if err != nil {
		return "", 0, fmt.Errorf("launch: rendezvous at %s: bad store address: %w", rv.endpoint, err)
	}
	rv.watching = process.Tick(rv.job.Monitor, func() bool { return rv.look(attempt) })
	return host, port, nil
}

// open serves the store of an attempt once every node's ranks of the one before are dead.
func (rv *rendezvous) open(ctx context.Context, attempt int) error {
	if attempt > 0 && !rv.job.Elastic() { // in an elastic job that's so before an attempt has a world
		keys := rv.keys(attemptKey(attempt-1, "stopped/%d"))
		if err := rv.poll(ctx, time.Time{}, attemptKey(attempt, "failure"), keys); err != nil {
			return fmt.Errorf("launch: %s did not stop for attempt %d: %w", rv.missing(keys), attempt, err)
		}
	}
	if rv.ranks != nil {
		rv.ranks.Close()
	}
	host := rv.storeHost()
	ranks, err := rv.serve(host, rv.job.MasterPort)
	if err != nil {
		return fmt.Errorf("launch: cannot serve the job's store: %w", err)
	}
	rv.ranks = ranks
	return rv.store.Set(ctx, attemptKey(attempt, "store"), []byte(net.JoinHostPort(host, strconv.Itoa(rv.ranks.Port()))))
}

// News implements [Peers].
func (rv *rendezvous) News() <-chan *process.Failure { return rv.events }

// storeHost is where the stores of attempts are served. It's the host of the endpoint, or, with a store of the user's,
// this host's address on the way to that.
func (rv *rendezvous) storeHost() string {
	if rv.job.MasterAddr != "" {
		return rv.job.MasterAddr
	}
	if rv.job.Store != "" {
		return rv.job.storeSide()
	}
	host, _, _ := net.SplitHostPort(rv.endpoint)
	return host
}

// Finished implements [Peers]. If the store does not answer, look will find out.
func (rv *rendezvous) Finished(attempt int) {
	rv.insist(func(ctx context.Context) error {
		return rv.store.Set(ctx, attemptKey(attempt, "finished/"+strconv.Itoa(rv.Node)), []byte("1"))
	})
}

// insist repeats an operation on the store until it succeeds, or the store is lost, which is an error.
func (rv *rendezvous) insist(f func(ctx context.Context) error) error {
	for {
		ctx, cancel := rv.withLimit()
		err := f(ctx)
		cancel()
		if err == nil || !rv.alive.tolerates() || !process.Sleep(rv.alive.reach(), rv.job.Monitor) {
			return err
		}
	}
}

// Failed implements [Peers].
func (rv *rendezvous) Failed(f *process.Failure) *process.Failure {
	data, _ := json.Marshal(f)
	var first []byte
	err := rv.insist(func(ctx context.Context) (err error) {
		first, err = rv.store.CompareSet(ctx, attemptKey(f.Attempt, "failure"), nil, data)
		return err
	})
	if err == nil {
		return decodeFailure(first)
	}
	// The others can't be reached; for this node it is the first. But that a rank fails is likely a consequence of the
	// loss of the node whose launcher serves, if that has ended: of a silent one the ranks hadn't heard yet.
	if f.Restartable() && rv.job.Store == "" && rv.alive != nil {
		if !silence(err) {
			rv.alive.noAnswer(err)
		}
		if lost := rv.alive.ended(f.Attempt); lost != nil {
			return lost
		}
	}
	return f
}

// Stopped implements [Peers].
func (rv *rendezvous) Stopped(attempt int, f *process.Failure, records []*observe.Dump) (told string, ok bool) {
	rv.watching.Stop()
	select {
	case <-rv.events: // not wanted any more
	default:
	}
	rv.publish(attempt, records)
	if !f.Explainable() {
		return "", false
	}
	return rv.explainAcrossNodes(attempt)
}

func (rv *rendezvous) closeStores() {
	if rv.base != nil {
		rv.base.Close()
	}
	if rv.server != nil {
		rv.server.Close()
	}
	if rv.ranks != nil {
		rv.ranks.Close()
	}
}

// look looks for the outcome of an attempt and reports whether to go on looking.
func (rv *rendezvous) look(attempt int) bool {
	over, f, err := rv.outcome(attempt)
	lost := rv.alive.loss(attempt)
	switch {
	case err != nil:
		if lost == nil {
			if rv.alive.tolerates() {
				return true
			}
			rv.alive.noAnswer(err)
			lost = rv.alive.loss(attempt)
		}
		rv.events <- lost
		return false
	case over:
		if f == nil {
			rv.kind.over()
		}
		rv.events <- f
		return false
	case lost != nil && rv.server != nil:
		rv.Failed(lost) // the next look finds what came first
	}
	return true
}

// outcome reports whether an attempt is over, and its first failure; nil if the ranks of all nodes have finished well.
func (rv *rendezvous) outcome(attempt int) (over bool, f *process.Failure, err error) {
	ctx, cancel := rv.withLimit()
	defer cancel()
	failure := attemptKey(attempt, "failure")
	if over, err = rv.store.Check(ctx, failure); err != nil {
		return false, nil, err
	}
	if over {
		data, err := rv.store.Get(ctx, failure)
		if err != nil {
			return false, nil, err
		}
		return true, decodeFailure(data), nil
	}
	over, err = rv.store.Check(ctx, rv.keys(attemptKey(attempt, "finished/%d"))...)
	return over, nil, err
}

// withLimit bounds an operation on the store; a store that takes longer is as good as lost, and gets no time at all
// once it is.
func (rv *rendezvous) withLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(rv.alive.reach(), rv.job.LostAfter)
}

// refusedError is the value of the key that ends a poll early.
type refusedError struct{ value []byte }

func (e *refusedError) Error() string { return string(e.value) }

var errLate = errors.New("the time is over")

// poll waits until all keys exist, or veto does, which is a *refusedError, or until a time, unless that's zero, which is
// errLate.
func (rv *rendezvous) poll(ctx context.Context, until time.Time, veto string, keys []string) error {
	var late <-chan time.Time
	if !until.IsZero() {
		late = time.After(time.Until(until))
	}
	// Liveness checks begin when all have seen that all have come.
	t := time.NewTicker(max(min(rv.job.Monitor, rv.job.LostAfter/10), time.Millisecond))
	defer t.Stop()
	for {
		done, err := rv.settled(ctx, veto, keys)
		if refusal := (*refusedError)(nil); done || errors.As(err, &refusal) ||
			err != nil && (ctx.Err() != nil || !rv.alive.tolerates()) {
			return err
		}
		if f := rv.alive.loss(0); f != nil {
			return f
		}
		select {
		case <-t.C:
		case <-late:
			return errLate
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settled reports whether all keys exist, or with a *refusedError that veto does.
func (rv *rendezvous) settled(ctx context.Context, veto string, keys []string) (bool, error) {
	no, err := rv.store.Check(ctx, veto)
	if err != nil {
		return false, err
	}
	if no {
		value, err := rv.store.Get(ctx, veto)
		if err != nil {
			return false, err
		}
		return false, &refusedError{value}
	}
	return rv.store.Check(ctx, keys...)
}

// missing names the nodes whose keys do not exist.
func (rv *rendezvous) missing(keys []string) string {
	ctx, cancel := rv.withLimit()
	defer cancel()
	var nodes []string
	for n, k := range keys {
		if ok, err := rv.store.Check(ctx, k); err == nil && !ok {
			nodes = append(nodes, strconv.Itoa(n))
		}
	}
	if len(nodes) == 1 {
		return "node " + nodes[0]
	}
	return "nodes " + strings.Join(nodes, ", ")
}

// keys fills in the number of each node.
func (rv *rendezvous) keys(format string) []string {
	nodes := len(rv.world)
	if nodes == 0 { // not all have come
		nodes = rv.job.Nodes
	}
	keys := make([]string, nodes)
	for n := range keys {
		keys[n] = fmt.Sprintf(format, n)
	}
	return keys
}

func attemptKey(attempt int, name string) string { return fmt.Sprintf("attempt/%d/%s", attempt, name) }

func decodeFailure(data []byte) *process.Failure {
	f := new(process.Failure)
	if err := json.Unmarshal(data, f); err != nil {
		return &process.Failure{Kind: process.NodeLost, Reason: "a failure was reported, but not legibly: " + err.Error()}
	}
	return f
}
