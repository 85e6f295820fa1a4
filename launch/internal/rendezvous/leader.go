package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// leader is what a launcher of an elastic job knows of the others. Each watches those that came before it. The first of
// those that are left leads: it watches all, ends attempts whose nodes change, and decides when the next one begins, and
// with which nodes. It writes its decisions by compare-and-set: so a second leader can't decide otherwise, if the first
// one had only seemed lost. Its methods run on one goroutine at a time.
type leader struct {
	e         *elastic
	every     time.Duration // between ticks
	last      time.Time     // tick that could read the store
	launchers []*watched

	newest int   // attempt that has a world; -1: none
	world  world // its world
	pause  pause // before the attempt after it
}

// watched is what is seen of a launcher.
type watched struct {
	entry
	heartbeat
	seen time.Time // the tick that looked at it last
	gone string    // why it isn't among the launchers any more; empty: it is
	lost bool      // it didn't leave by itself
}

func (w *watched) String() string { return fmt.Sprintf("%v: %s", w.Member, w.gone) }

// pause is the time between two attempts.
type pause struct {
	began  time.Time // zero: not yet
	judged bool      // the failure of the attempt before has been counted, if it counts
	counts int       // failures so far that count
	enough time.Time // since when there are enough nodes; zero: there aren't
}

func newLeader(e *elastic, every time.Duration) *leader {
	return &leader{e: e, every: every, last: time.Now(), newest: -1}
}

// tick looks at the other launchers once, and does what a leader does if this is one.
func (l *leader) tick() bool {
	ctx, cancel := l.e.withLimit()
	defer cancel()
	if l.e.server != nil {
		l.e.terms.hear(ctx, l.e.say)
	}
	leads, err := l.look(ctx, time.Now())
	if err == nil && leads {
		err = l.lead(ctx, time.Now())
	}
	if err != nil && l.e.alive.ctx.Err() == nil && !l.e.alive.tolerates() {
		l.e.alive.noAnswer(err)
	}
	return true
}

// look reads what the launchers say, and reports whether this launcher leads.
func (l *leader) look(ctx context.Context, now time.Time) (leads bool, err error) {
	me := l.e.alive.me
	for {
		there, err := l.e.store.Check(ctx, entryKey(len(l.launchers)))
		if err != nil {
			return false, err
		}
		if !there {
			break
		}
		l.launchers = append(l.launchers, &watched{})
	}
	leads = !slices.ContainsFunc(l.launchers[:min(me, len(l.launchers))], func(w *watched) bool { return w.gone == "" })
	var watch []int
	var keys []string
	for n, w := range l.launchers {
		if w.gone == "" && n != me && (leads || n < me) {
			watch, keys = append(watch, n), append(keys, entryKey(n))
		}
	}
	if leads { // what it says of itself counts as well
		watch, keys = append(watch, me), append(keys, entryKey(me))
	}
	values, err := store.MultiGet(ctx, l.e.store, keys...)
	if err != nil {
		return false, err
	}
	// While this launcher was stopped, or the store did not answer, it could not see heartbeats.
	slept := now.Sub(l.last) - 2*l.every
	for i, n := range watch {
		w := l.launchers[n]
		if w.seen != l.last { // it wasn't watched
			w.at = now
		} else if slept > 0 {
			w.at = w.at.Add(slept)
		}
		w.seen = now
		s, err := decode[entry](values[i])
		if err != nil || s.Ranks < 1 || s.Ranks > maxRanks {
			w.gone, w.lost = "its record is not legible", true
			continue
		}
		w.entry = s
		if n != me {
			if err := l.judge(ctx, n, w, now); err != nil {
				return false, err
			}
		}
	}
	l.last = now
	return leads, nil
}

// judge finds out whether a launcher is there.
func (l *leader) judge(ctx context.Context, n int, w *watched, now time.Time) error {
	if w.Left {
		w.gone = "its launcher has left the job"
		return nil
	}
	why := []byte(w.heartbeat.look(l.e.rendezvous, n, fmt.Sprint(w.Beat), now))
	there, err := l.e.store.Check(ctx, lostKey(n))
	switch {
	case err != nil:
		return err
	case there: // another launcher has found it lost
		why, err = l.e.store.Get(ctx, lostKey(n))
	case len(why) > 0:
		why, err = l.e.store.CompareSet(ctx, lostKey(n), nil, why)
	}
	if err == nil && len(why) > 0 {
		w.gone, w.lost = string(why), true
	}
	return err
}

// others reports whether there are other launchers.
func (l *leader) others() bool {
	for n, w := range l.launchers {
		if n != l.e.alive.me && w.gone == "" {
			return true
		}
	}
	return false
}

// lead does the work of a leader once.
func (l *leader) lead(ctx context.Context, now time.Time) error {
	if over, err := l.e.store.Check(ctx, "ended"); over || err != nil {
		return err
	}
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	if l.newest >= 0 {
		f, err := l.failure(ctx)
		if err != nil {
			return err
		}
		if f == nil {
			return l.attend(ctx)
		}
		return l.form(ctx, now, f)
	}
	return l.form(ctx, now, nil)
}

// catchUp finds the newest attempt that has a world. A leader that takes over knows none.
func (l *leader) catchUp(ctx context.Context) error {
	for {
		there, err := l.e.store.Check(ctx, worldKey(l.newest+1))
		if err != nil || !there {
			return err
		}
		data, err := l.e.store.Get(ctx, worldKey(l.newest+1))
		if err != nil {
			return err
		}
		w, err := decode[world](data)
		if err == nil {
			err = w.check(l.e.job)
		}
		if err == nil && slices.ContainsFunc(w.IDs, func(s int) bool { return s < 0 || s >= len(l.launchers) }) {
			err = fmt.Errorf("ids %v, of %d", w.IDs, len(l.launchers))
		}
		if err != nil {
			l.e.end(&EndedError{Text: fmt.Sprintf("rendezvous at %s: attempt %d: %v", l.e.endpoint, l.newest+1, err)})
			return nil
		}
		l.newest, l.world, l.pause = l.newest+1, w, pause{counts: w.Restarts}
	}
}

// failure returns that of the newest attempt; nil if there is none.
func (l *leader) failure(ctx context.Context) (*process.Failure, error) {
	key := attemptKey(l.newest, "failure")
	there, err := l.e.store.Check(ctx, key)
	if err != nil || !there {
		return nil, err
	}
	data, err := l.e.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return decodeFailure(data), nil
}

// attend ends an attempt that runs if a node is gone whose ranks haven't finished, or if one waits that there's a place
// for.
func (l *leader) attend(ctx context.Context) error {
	running := false
	for i, s := range l.world.IDs {
		finished, err := l.e.store.Check(ctx, attemptKey(l.newest, fmt.Sprintf("finished/%d", i)))
		if err != nil {
			return err
		}
		if w := l.launchers[s]; !finished && w.gone != "" {
			l.e.rendezvous.Failed(&process.Failure{Kind: process.NodeLost, Attempt: l.newest, Node: i, Host: w.Host,
				Reason: w.gone})
			return nil
		}
		running = running || !finished
	}
	if !running {
		l.e.end(&EndedError{})
		return nil
	}
	if len(l.world.IDs) == l.e.job.Nodes {
		return nil
	}
	for s, w := range l.launchers {
		if w.gone == "" && w.Ready == l.newest+1 && !slices.Contains(l.world.IDs, s) {
			l.e.rendezvous.Failed(&process.Failure{Kind: process.NodeCame, Attempt: l.newest, Node: -1, Host: w.Host,
				Pid: w.Pid})
			return nil
		}
	}
	return nil
}

// form forms the world of the next attempt when its nodes are there, after a failure of the one before unless it's the
// first.
func (l *leader) form(ctx context.Context, now time.Time, f *process.Failure) error {
	j, g, next := l.e.job, &l.pause, l.newest+1
	if g.began.IsZero() {
		g.began = now
	}
	late := now.Sub(g.began) > j.JoinTimeout
	var gone, stopping []string
	for i, s := range l.world.IDs {
		switch w := l.launchers[s]; {
		case w.gone != "":
			gone = append(gone, fmt.Sprintf("node %d (%v)", i, w))
		case w.Ready != next:
			stopping = append(stopping, fmt.Sprintf("node %d (%v)", i, w.Member))
		}
	}
	if len(stopping) > 0 {
		if late {
			l.e.end(&EndedError{Text: fmt.Sprintf("%s did not stop for attempt %d within %s", strings.Join(stopping, ", "), next,
				j.JoinTimeout)})
		}
		return nil
	}
	if f != nil && !g.judged {
		g.judged = true
		if end := l.count(f, len(gone) > 0); end != nil {
			l.e.end(end)
			return nil
		}
	}
	var ready []int
	for s, w := range l.launchers {
		if w.gone == "" && w.Ready == next && len(ready) < j.Nodes {
			ready = append(ready, s)
		}
	}
	if len(ready) < j.MinNodes {
		g.enough = time.Time{}
		if late {
			l.e.end(&EndedError{Text: l.tooFew(len(ready), gone)})
		}
		return nil
	}
	if g.enough.IsZero() {
		g.enough = now
	}
	if whole := f != nil && len(gone) == 0; !whole && len(ready) < j.Nodes && now.Sub(g.enough) < j.LastCall {
		return nil
	}
	w := world{IDs: ready, Restarts: g.counts}
	for i, s := range l.world.IDs {
		said := f.Node == i && (f.Kind == process.NodeLost || f.Kind == process.Interrupted)
		if x := l.launchers[s]; x.gone != "" && !said {
			w.Gone = append(w.Gone, fmt.Sprintf("node %d of attempt %d (%v)", i, l.newest, x))
		}
	}
	for _, s := range ready {
		w.Nodes = append(w.Nodes, l.launchers[s].Member)
	}
	text, _ := json.Marshal(w)
	_, err := l.e.store.CompareSet(ctx, worldKey(next), nil, text)
	return err
}

// count counts a failure against MaxRestarts, and returns how the job ends if that leaves no restart. The failure of a
// rank doesn't count where a node is gone: it's likely a consequence.
func (l *leader) count(f *process.Failure, gone bool) *EndedError {
	switch {
	case gone || f.Kind == process.NodeCame || f.Kind == process.NodeLost || f.Kind == process.Interrupted:
		return nil
	case !f.Restartable() || l.pause.counts >= l.e.job.MaxRestarts:
		return &EndedError{Failure: f}
	}
	l.pause.counts++
	return nil
}

// tooFew says that there are too few nodes, and which are gone.
func (l *leader) tooFew(there int, gone []string) string {
	j := l.e.job
	text := fmt.Sprintf("%s of at least %d came within %s", counted(there, "node"), j.MinNodes, j.JoinTimeout)
	if l.newest >= 0 {
		text += fmt.Sprintf(" after attempt %d", l.newest)
	}
	if len(gone) > 0 {
		text += ": lost: " + strings.Join(gone, "; ")
	}
	return text + l.e.terms.differ()
}
