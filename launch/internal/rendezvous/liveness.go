package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// liveness is a launcher's knowledge of which others are alive. The one that serves the rendezvous watches all others,
// and they watch it.
//
// There are two signs. Each of the others keeps a connection to the rendezvous, on which it waits for a key that is
// never written: the kernel ends it at once when either launcher dies. Each also increments a number there ten times in
// LostAfter: if a link or a host falls silent, only the missing heartbeats show it.
type liveness struct {
	rv  *rendezvous
	say func(*process.Failure)
	me  int // this launcher's number in its keys
	// How long the rendezvous may fail to answer; 0: not at all. A store of several servers needs a while when one dies.
	patience time.Duration
	node     atomic.Int64 // where this launcher is in an elastic job's attempt
	// The context of all requests to the rendezvous. It ends when the rendezvous can't be reached any more, and when
	// this launcher leaves.
	ctx     context.Context
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup
	watcher *process.Ticking // checks the heartbeats, on the launcher that serves
	beats   *process.Ticking // sends heartbeats, on the others

	mu     sync.Mutex
	losses []*process.Failure // in order of time
	heard  time.Time          // when the rendezvous last answered
	silent bool               // the rendezvous was lost by silence alone
	sent   int64              // beats

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

func (rv *rendezvous) newLiveness(me int, say func(*process.Failure)) *liveness {
	v := &liveness{rv: rv, me: me, say: say, heard: time.Now()}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	rv.alive = v
	return v
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
func (v *liveness) loss(attempt int) *process.Failure {
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

// ended is as loss, but without a loss of which silence is the only sign.
func (v *liveness) ended(attempt int) *process.Failure {
	v.mu.Lock()
	silent := v.silent
	v.mu.Unlock()
	if silent {
		return nil
	}
	return v.loss(attempt)
}

// silence reports whether an error is that nothing was heard.
func silence(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && n.Timeout()
}

// lost reports whether a node is lost.
func (v *liveness) lost(node int) bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.losses, func(f *process.Failure) bool { return f.Node == node })
}

// lose notes that a node is lost.
func (v *liveness) lose(node int, host, reason string) {
	v.note(&process.Failure{Kind: process.NodeLost, Node: node, Host: host, Reason: reason}, false)
}

// note notes a loss; silent says whether silence is its only sign.
func (v *liveness) note(f *process.Failure, silent bool) {
	v.mu.Lock()
	known := slices.ContainsFunc(v.losses, func(o *process.Failure) bool { return o.Node == f.Node })
	if !known {
		v.silent = silent && len(v.losses) == 0
		v.losses = append(v.losses, f)
	}
	v.mu.Unlock()
	if !known {
		v.say(f)
	}
}

// lastHeard is when the rendezvous last answered.
func (v *liveness) lastHeard() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard
}

// tolerates reports whether an error of the rendezvous may pass.
func (v *liveness) tolerates() bool {
	return v != nil && v.ctx.Err() == nil && time.Since(v.lastHeard()) < v.patience
}

// noAnswer notes that the launcher that serves is lost, because of an error of the rendezvous.
func (v *liveness) noAnswer(err error) {
	if v.ctx.Err() != nil {
		return // this launcher leaves, or has noted it
	}
	heard := v.lastHeard()
	if v.rv.job.Store != "" {
		v.lose(int(v.node.Load()), v.rv.host, fmt.Sprintf("the store where the nodes meet, %s, has not answered its launcher %s: %v",
			v.rv.job.Store, process.Since(heard), err))
		v.end(v.loss(0))
		return
	}
	reason := fmt.Sprintf("its launcher, at %s, has not answered %s: %v", v.rv.endpoint, process.Since(heard), err)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) && v.refused() {
		reason = fmt.Sprintf("its launcher has ended: no process listens at %s any more, %s", v.rv.endpoint, process.Since(heard))
	}
	if v.rv.job.Elastic() {
		reason += "; the nodes met there, so the job ends with it"
	}
	v.note(&process.Failure{Kind: process.NodeLost, Node: v.rv.serverPos, Host: v.rv.serverHost, Reason: reason},
		silence(err))
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
	if err := v.rv.kind.beat(ctx, v.sent); err != nil {
		if v.tolerates() {
			return true
		}
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
		err := v.rv.store.Wait(v.ctx, hereKey(v.me))
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
		if n == v.rv.Node || v.lost(n) || v.left(n) {
			continue
		}
		if why := p.look(v.rv, n, v.read(beatKey(n)), now); why != "" {
			v.lose(n, v.rv.world[n].Host, why)
		}
	}
}

// look notes what is seen of launcher n, and returns why it's lost; empty: it isn't.
func (p *heartbeat) look(rv *rendezvous, n int, beat string, now time.Time) string {
	if beat != p.beat {
		p.beat, p.at = beat, now
	}
	switch {
	case rv.server == nil:
	case rv.server.Waiting(rv.prefix()+"/"+hereKey(n)) > 0:
		p.here, p.absent = true, time.Time{}
	case p.here && p.absent.IsZero():
		p.absent = now
	}
	switch {
	case !p.absent.IsZero() && now.Sub(p.absent) > returnTime:
		return "its launcher has ended: there is no connection to it " + process.Since(p.absent)
	case now.Sub(p.at) > rv.job.LostAfter:
		return "its launcher has been silent " + process.Since(p.at)
	}
	return ""
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
