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

// A vigil is what a launcher knows of whether the others are alive. The one that serves the rendezvous watches over all
// others, and they over it.
//
// There are two signs. Each of the others keeps a connection to the rendezvous, on which it waits for a key that nobody
// writes: the kernel ends it at once when either launcher dies. And each raises a number there ten times in LostAfter,
// and sees it arrive: if a link or a host falls silent, that is all there is to go by.
type vigil struct {
	rv  *rendezvous
	say func(*Failure)
	// Of all that the rendezvous is asked; ends when it can't be reached any more, and with the vigil.
	ctx     context.Context
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup
	watcher *ticking // over the pulses, of the launcher that serves
	beats   *ticking // of the others

	mu     sync.Mutex
	losses []*Failure // in order of time
	heard  time.Time  // when the rendezvous last answered
	sent   int64      // beats

	pulse []pulse // of each node; used by the watcher alone
	last  time.Time
}

// pulse is what the launcher that serves has seen of another.
type pulse struct {
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

// watchOver begins the vigil, when all nodes have come.
func (rv *rendezvous) watchOver(say func(*Failure)) {
	v := &vigil{rv: rv, say: say, heard: time.Now(), last: time.Now(), pulse: make([]pulse, len(rv.world))}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	rv.alive = v
	every := max(rv.job.LostAfter/10, time.Millisecond)
	if rv.server != nil {
		for i := range v.pulse {
			v.pulse[i].at = v.last
		}
		every = min(every, rv.job.Monitor)
		v.watcher = tick(every, func() bool { v.look(every); return true })
		return
	}
	v.beats = tick(every, v.beat)
	v.tasks.Go(v.hold)
}

// reach is the context of what the rendezvous is asked. Without a vigil, before all have come, nothing bounds it.
func (v *vigil) reach() context.Context {
	if v == nil {
		return context.Background()
	}
	return v.ctx
}

// loss returns the first node that was lost as the failure of an attempt; nil if there is none.
func (v *vigil) loss(attempt int) *Failure {
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
func (v *vigil) lost(node int) bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.losses, func(f *Failure) bool { return f.Node == node })
}

// lose notes that a node is lost.
func (v *vigil) lose(node int, reason string) {
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
func (v *vigil) noAnswer(err error) {
	if v.ctx.Err() != nil {
		return // this launcher leaves, or has noted it
	}
	v.mu.Lock()
	heard := v.heard
	v.mu.Unlock()
	reason := fmt.Sprintf("its launcher, at %s, has not answered %s: %v", v.rv.endpoint, since(heard), err)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) && v.refused() {
		reason = fmt.Sprintf("its launcher has ended: nobody listens at %s any more, %s", v.rv.endpoint, since(heard))
	}
	v.lose(v.rv.serverPos, reason)
	v.end(v.loss(0))
}

// refused reports whether nobody listens at the endpoint. A connection that waited to be accepted when the launcher
// ended is reset and not refused, and a process that ends closes its sockets one after another: it's asked a few times.
func (v *vigil) refused() bool {
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

// beat shows that this launcher is alive, and sees whether the rendezvous is.
func (v *vigil) beat() bool {
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
func (v *vigil) hold() {
	for v.ctx.Err() == nil {
		err := v.rv.store.Wait(v.ctx, hereKey(v.rv.node))
		if err == nil {
			return // nobody writes that key
		}
		if !errors.Is(err, context.DeadlineExceeded) { // the store bounds every call
			v.noAnswer(err)
		}
	}
}

// look takes the pulses. It's called at an interval.
func (v *vigil) look(every time.Duration) {
	now := time.Now()
	slept := now.Sub(v.last) - 2*every // this launcher was stopped itself, and the others could not be heard
	v.last = now
	for n := range v.pulse {
		p := &v.pulse[n]
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
func (v *vigil) read(key string) string {
	ctx, cancel := v.rv.withLimit()
	defer cancel()
	if there, err := v.rv.store.Check(ctx, key); err != nil || !there {
		return ""
	}
	value, _ := v.rv.store.Get(ctx, key)
	return string(value)
}

// left reports whether a node has left the job.
func (v *vigil) left(node int) bool { return v.read(leftKey(node)) != "" }

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
