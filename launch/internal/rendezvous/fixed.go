package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// fixed is the rendezvous of a job whose nodes are the same all the time. They have all come before the first attempt.
type fixed struct{ *rendezvous }

func newFixed(rv *rendezvous) *fixed {
	f := &fixed{rv}
	rv.kind = f
	return f
}

// Join takes this launcher's place among the nodes, which it returns when all have come. From then on, lost is called
// at once with each node that is lost.
func Join(ctx context.Context, j *Config, host string, say func(string, ...any), lost func(*process.Failure)) (p Peers,
	node int, err error) {
	until := time.Now().Add(j.JoinTimeout)
	joining, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	rv := newFixed(newRendezvous(j, host))
	if err = rv.connect(joining); err == nil {
		err = rv.enter(joining, host)
	}
	if err == nil {
		err = rv.gather(ctx, until, say)
	}
	if err != nil {
		rv.Close()
		return nil, 0, err
	}
	rv.startLiveness(lost)
	return rv, rv.Node, nil
}

// enter claims a node rank. The serving launcher does so first, and only then lets the others in.
func (rv *fixed) enter(ctx context.Context, host string) error {
	j := rv.job
	mine, _ := json.Marshal(j.member(host))
	if rv.server == nil {
		if err := rv.agree(ctx); err != nil {
			return err
		}
	}
	first, last := 0, j.Nodes-1
	if j.NodeRank != AnyNodeRank {
		first, last = j.NodeRank, j.NodeRank
	}
	var holder Member
	for rv.Node = first; ; rv.Node++ {
		if rv.Node > last {
			if first == last {
				return fmt.Errorf("launch: node rank %d is taken (%v)", first, holder)
			}
			return fmt.Errorf("launch: all %d nodes of job %q have come already", j.Nodes, j.RunID)
		}
		held, err := rv.store.CompareSet(ctx, fmt.Sprintf("node/%d", rv.Node), nil, mine)
		if err != nil {
			return fmt.Errorf("launch: rendezvous at %s: %w", rv.endpoint, err)
		}
		if string(held) == string(mine) {
			break
		}
		json.Unmarshal(held, &holder)
	}
	if rv.server == nil {
		return nil
	}
	rv.serverPos = rv.Node
	t := j.settings()
	t.Server, t.Host = rv.Node, host
	text, _ := json.Marshal(t)
	return rv.store.Set(ctx, "job", text)
}

// gather waits until all nodes have come. A launcher that times out with some missing tells the others, so that all
// give the same reason. The one that serves says at once which launchers have come that are of another job, or have
// other settings.
func (rv *fixed) gather(ctx context.Context, until time.Time, say func(string, ...any)) error {
	keys := rv.keys("node/%d")
	// The end of the time cuts no request short, which would end the connection: another launcher may be about to say
	// why the job can't begin.
	ctx, cancel := context.WithDeadline(ctx, until.Add(rv.job.Grace))
	defer cancel()
	var listening *process.Ticking
	if rv.server != nil {
		listening = process.Tick(rv.job.Monitor, func() bool { rv.terms.hear(ctx, say); return true })
	}
	err := rv.poll(ctx, until, "refused", keys)
	listening.Stop()
	if refusal := (*refusedError)(nil); errors.As(err, &refusal) {
		return fmt.Errorf("launch: %s", refusal.value)
	}
	if err == errLate {
		why := fmt.Sprintf("%s of %d did not come within %s", rv.missing(keys), rv.job.Nodes, rv.job.JoinTimeout)
		rv.terms.hear(ctx, func(string, ...any) {})
		why += rv.terms.differ()
		rv.store.Set(ctx, "refused", []byte(why))
		return fmt.Errorf("launch: %s", why)
	}
	if err != nil {
		return fmt.Errorf("launch: rendezvous at %s: %w", rv.endpoint, err)
	}
	values, err := store.MultiGet(ctx, rv.store, keys...)
	if err != nil {
		return fmt.Errorf("launch: rendezvous at %s: %w", rv.endpoint, err)
	}
	rv.world = make([]Member, len(values))
	for i, v := range values {
		if err := json.Unmarshal(v, &rv.world[i]); err != nil || rv.world[i].Ranks < 1 || rv.world[i].Ranks > maxRanks {
			return fmt.Errorf("launch: rendezvous at %s: bad record of node %d", rv.endpoint, i)
		}
	}
	return nil
}

// Begin implements [Peers].
func (rv *fixed) Begin(ctx context.Context, attempt int) (*Start, error) {
	s := &Start{Attempt: attempt, Restarts: attempt, World: rv.world, Node: rv.Node}
	return s, rv.enterAttempt(ctx, s)
}

// Again implements [Peers].
func (rv *fixed) Again(s *Start, f *process.Failure) bool { return rv.job.again(s, f) }

// startLiveness begins the checks, when all nodes have come.
func (rv *fixed) startLiveness(say func(*process.Failure)) {
	v := rv.newLiveness(rv.Node, say)
	v.last, v.heartbeats = time.Now(), make([]heartbeat, len(rv.world))
	every := rv.job.beats()
	if rv.server != nil {
		for i := range v.heartbeats {
			v.heartbeats[i].at = v.last
		}
		every = min(every, rv.job.Monitor)
		v.watcher = process.Tick(every, func() bool { v.look(every); return true })
		return
	}
	v.beats = process.Tick(every, v.beat)
	v.tasks.Go(v.hold)
}

// leave leaves the job. The launcher that serves waits until the others have left or are lost.
func (rv *fixed) leave(patience time.Duration) {
	v := rv.alive
	if rv.server == nil {
		ctx, cancel := rv.withLimit()
		rv.store.Set(ctx, leftKey(rv.Node), []byte("1"))
		cancel()
		v.end(context.Canceled)
		v.beats.Stop()
		v.tasks.Wait()
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	for n := range rv.world {
		for n != rv.Node && !v.left(n) && !v.lost(n) && process.Sleep(ctx, rv.job.Monitor) {
		}
	}
	v.watcher.Stop()
	v.end(context.Canceled)
}

// Close implements [Peers]. The launcher that serves stays until the others have gone, so that they learn the outcome.
func (rv *fixed) Close() {
	rv.watching.Stop()
	patience := 2*rv.job.Grace + process.DrainTime
	switch {
	case rv.alive != nil:
		rv.leave(patience)
	case rv.server != nil: // not all have come: those that have get the refusal
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		rv.server.Drain(ctx)
	}
	rv.closeStores()
}

// beat implements kind.
func (rv *fixed) beat(ctx context.Context, beats int64) error {
	return rv.store.Set(ctx, beatKey(rv.Node), strconv.AppendInt(nil, beats, 10))
}

// lost implements kind.
func (rv *fixed) lost(node int) bool { return rv.alive.lost(node) }

// over implements kind.
func (rv *fixed) over() {}
