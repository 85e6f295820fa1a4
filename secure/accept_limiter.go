package secure

import (
	"context"
	"io"
	"sync"
	"time"
)

// An AcceptLimiter bounds what unauthenticated connections cost a listener, so that a flood of them leaves its process
// the time to work. The zero AcceptLimiter is ready; its methods may be called from any goroutine.
//
//	for {
//		limiter.Wait(ctx)
//		conn, err := listener.Accept()
//		pending := limiter.Enter(conn)
//		go func() { pending.Leave(greet(conn) == nil) }()
//	}
type AcceptLimiter struct {
	mu            sync.Mutex
	oldest        *PendingConn // the one that has waited longest
	newest        *PendingConn
	pending       int
	busyUntil     time.Time     // until when the time for unauthenticated connections is used up
	authenticated chan struct{} // closed when a connection authenticates; nil while no Wait is under way
}

const (
	// maxPending connections may be unauthenticated at once. One more closes the oldest: so a silent one can't keep
	// others out, while a process of the job needs two round trips only.
	maxPending = 1024

	// Each connection costs connCost of the listener's time, which authentication gives back. So unauthenticated
	// connections are accepted at a rate of at most 1/connCost, after a burst. Beyond the burst the listener rests
	// until all of that time has passed, and then accepts what has come in one go: waking up costs more than a garbage
	// connection itself. BenchmarkFlood of package comm measures what is left.
	connCost = 4 * time.Millisecond
	burst    = 200 * time.Millisecond
)

// A PendingConn is a connection that isn't authenticated yet.
type PendingConn struct {
	limiter    *AcceptLimiter
	conn       io.Closer
	prev, next *PendingConn
	gone       bool
}

// Wait returns when another connection may be accepted, or when ctx ends.
func (g *AcceptLimiter) Wait(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for debt := time.Until(g.busyUntil); debt > burst && ctx.Err() == nil; debt = time.Until(g.busyUntil) {
		if g.authenticated == nil {
			g.authenticated = make(chan struct{})
		}
		proved := g.authenticated
		g.mu.Unlock()
		t := time.NewTimer(debt)
		select {
		case <-t.C:
		case <-proved:
		case <-ctx.Done():
		}
		t.Stop()
		g.mu.Lock()
	}
}

// Add counts a new connection, and closes the oldest if there are too many.
func (g *AcceptLimiter) Add(conn io.Closer) *PendingConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == maxPending {
		oldest := g.oldest
		g.remove(oldest)
		oldest.conn.Close()
	}
	if now := time.Now(); g.busyUntil.Before(now) {
		g.busyUntil = now
	}
	g.busyUntil = g.busyUntil.Add(connCost)
	v := &PendingConn{limiter: g, conn: conn, prev: g.newest}
	if g.newest == nil {
		g.oldest = v
	} else {
		g.newest.next = v
	}
	g.newest = v
	g.pending++
	return v
}

// Done ends the connection's part in the limiter, authenticated or not. It reports false if the connection was closed
// meanwhile to make room, or Done was called before.
func (v *PendingConn) Done(proved bool) (inTime bool) {
	g := v.limiter
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.gone {
		return false
	}
	g.remove(v)
	if proved {
		g.busyUntil = g.busyUntil.Add(-connCost)
		if g.authenticated != nil {
			close(g.authenticated)
			g.authenticated = nil
		}
	}
	return true
}

func (g *AcceptLimiter) remove(v *PendingConn) {
	if v.prev == nil {
		g.oldest = v.next
	} else {
		v.prev.next = v.next
	}
	if v.next == nil {
		g.newest = v.prev
	} else {
		v.next.prev = v.prev
	}
	v.prev, v.next, v.gone = nil, nil, true
	g.pending--
}
