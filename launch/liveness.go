package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// liveness is a launcher's knowledge of which others are alive. The one that serves the rendezvous watches all others,
// and they watch it.
//
// There are two signs. Each of the others keeps a connection to the rendezvous, on which it waits for a key that is
// never written: the kernel ends it at once when either launcher dies. Each also increments a number there ten times in
// LostAfter: if a link or a host falls silent, only the missing heartbeats show it.
type liveness struct {
	rv  *rendezvous
	say func(*Failure)
	// The context of all requests to the rendezvous. It ends when the rendezvous can't be reached any more, and when
	// this launcher leaves.
	ctx     context.Context
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup
	watcher *ticking // checks the heartbeats, on the launcher that serves
	beats   *ticking // sends heartbeats, on the others

	mu     sync.Mutex
	losses []*Failure // in order of time
	heard  time.Time  // when the rendezvous last answered
	sent   int64      // beats

	heartbeats []heartbeat // of each node; used by the watcher alone
	last       time.Time
}

// heartbeat is what the launcher that serves has seen of another.
type heartbeat struct {
	beat   string
	at     time.Time // when the beat was last seen to change
	here   bool      // it has had its connection
	absent time.Time // when that was first seen to have ended; zero: it stands, or stands again
}

// returnTime is how long a launcher may be without its connection. If it's alive it makes another one at once.
const returnTime = time.Second

func hereKey(node int) string { return "here/" + strconv.Itoa(node) }
func leftKey(node int) string { return "left/" + strconv.Itoa(node) }
func beatKey(node int) string { return "beat/" + strconv.Itoa(node) }

// startLiveness begins the checks, when all nodes have come.
func (rv *rendezvous) startLiveness(say func(*Failure)) {
	v := &liveness{rv: rv, say: say, heard: time.Now(), last: time.Now(), heartbeats: make([]heartbeat, len(rv.world))}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	rv.alive = v
	every := max(rv.job.LostAfter/10, time.Millisecond)
	if rv.server != nil {
		for i := range v.heartbeats {
			v.heartbeats[i].at = v.last
		}
		every = min(every, rv.job.Monitor)
		v.watcher = tick(every, func() bool { v.look(every); return true })
		return
	}
	v.beats = tick(every, v.beat)
	v.tasks.Go(v.hold)
}

// reach is the context of requests to the rendezvous. Before all nodes have come there's no liveness, and nothing
// bounds it.
func (v *liveness) reach() context.Context {
	if v == nil {
		return context.Background()
	}
	return v.ctx
}

// loss returns the first node that was lost as the failure of an attempt; nil if there is none.
func (v *liveness) loss(attempt int) *Failure {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.losses) == 0 {
		return nil
	}
	f := *v.losses[0]
	f.Attempt = attempt
	return &f
}

// lost reports whether a node is lost.
func (v *liveness) lost(node int) bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.losses, func(f *Failure) bool { return f.Node == node })
}

// lose notes that a node is lost.
func (v *liveness) lose(node int, reason string) {
	f := &Failure{Kind: NodeLost, Node: node, Host: v.rv.world[node].Host, Reason: reason}
	v.mu.Lock()
	known := slices.ContainsFunc(v.losses, func(f *Failure) bool { return f.Node == node })
	if !known {
		v.losses = append(v.losses, f)
	}
	v.mu.Unlock()
	if !known {
		v.say(f)
	}
}

// since says when something began, by the clock and by how long that is.
func since(t time.Time) string {
	return fmt.Sprintf("since %s, for %s", t.Format(time.TimeOnly), seconds(time.Since(t)))
}

// noAnswer notes that the launcher that serves is lost, because of an error of the rendezvous.
func (v *liveness) noAnswer(err error) {
	if v.ctx.Err() != nil {
		return // this launcher leaves, or has noted it
	}
	v.mu.Lock()
	heard := v.heard
	v.mu.Unlock()
	reason := fmt.Sprintf("its launcher, at %s, has not answered %s: %v", v.rv.endpoint, since(heard), err)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) && v.refused() {
		reason = fmt.Sprintf("its launcher has ended: no process listens at %s any more, %s", v.rv.endpoint, since(heard))
	}
	v.lose(v.rv.serverPos, reason)
	v.end(v.loss(0))
}

// refused reports whether the endpoint has no listener. A connection that waited to be accepted when the launcher ended
// is reset and not refused, and a process that ends closes its sockets one after another: so this tries a few times.
func (v *liveness) refused() bool {
	for try := range 5 {
		c, err := net.DialTimeout("tcp", v.rv.endpoint, time.Second)
		if err == nil {
			c.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		time.Sleep(time.Duration(try+1) * 20 * time.Millisecond)
	}
	return false
}

// beat sends a heartbeat, and notes whether the rendezvous answers.
func (v *liveness) beat() bool {
	ctx, cancel := v.rv.withLimit()
	defer cancel()
	v.sent++
	if err := v.rv.store.Set(ctx, beatKey(v.rv.node), strconv.AppendInt(nil, v.sent, 10)); err != nil {
		v.noAnswer(err)
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = time.Now()
	return true
}

// hold keeps the connection by which each end learns that the other has died.
func (v *liveness) hold() {
	for v.ctx.Err() == nil {
		err := v.rv.store.Wait(v.ctx, hereKey(v.rv.node))
		if err == nil {
			return // can't be: that key is never written
		}
		if !errors.Is(err, context.DeadlineExceeded) { // the store bounds every call
			v.noAnswer(err)
		}
	}
}

// look checks the heartbeats. It's called at an interval.
func (v *liveness) look(every time.Duration) {
	now := time.Now()
	slept := now.Sub(v.last) - 2*every // this launcher was stopped itself, and could not see heartbeats
	v.last = now
	for n := range v.heartbeats {
		p := &v.heartbeats[n]
		if slept > 0 {
			p.at = p.at.Add(slept)
		}
		if n == v.rv.node || v.lost(n) || v.left(n) {
			continue
		}
		if beat := v.read(beatKey(n)); beat != p.beat {
			p.beat, p.at = beat, now
		}
		switch {
		case v.rv.server.Waiting(v.rv.prefix()+"/"+hereKey(n)) > 0:
			p.here, p.absent = true, time.Time{}
		case p.here && p.absent.IsZero():
			p.absent = now
		}
		switch {
		case !p.absent.IsZero() && now.Sub(p.absent) > returnTime:
			v.lose(n, "its launcher has ended: there is no connection to it "+since(p.absent))
		case now.Sub(p.at) > v.rv.job.LostAfter:
			v.lose(n, "its launcher has been silent "+since(p.at))
		}
	}
}

// read returns a value of the rendezvous; empty if there is none.
func (v *liveness) read(key string) string {
	ctx, cancel := v.rv.withLimit()
	defer cancel()
	if there, err := v.rv.store.Check(ctx, key); err != nil || !there {
		return ""
	}
	value, _ := v.rv.store.Get(ctx, key)
	return string(value)
}

// left reports whether a node has left the job.
func (v *liveness) left(node int) bool { return v.read(leftKey(node)) != "" }

// leave leaves the job. The launcher that serves waits until the others have left or are lost.
func (rv *rendezvous) leave(patience time.Duration) {
	v := rv.alive
	if rv.server == nil {
		ctx, cancel := rv.withLimit()
		rv.store.Set(ctx, leftKey(rv.node), []byte("1"))
		cancel()
		v.end(context.Canceled)
		v.beats.stop()
		v.tasks.Wait()
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	for n := range rv.world {
		for n != rv.node && !v.left(n) && !v.lost(n) && sleep(ctx, rv.job.Monitor) {
		}
	}
	v.watcher.stop()
	v.end(context.Canceled)
}

// sleep waits and reports whether ctx was still alive then.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
