package secure

import (
	"context"
	"io"
	"sync"
	"time"
)

// A Gate bounds what connections that haven't proved themselves cost a listener, so that a flood of them leaves its
// process the time to work. The zero Gate is ready; its methods may be called from any goroutine.
//
//	for {
//		gate.Wait(ctx)
//		conn, err := listener.Accept()
//		guest := gate.Enter(conn)
//		go func() { guest.Leave(greet(conn) == nil) }()
//	}
type Gate struct {
	mu     sync.Mutex
	first  *Guest // who has waited longest
	last   *Guest
	guests int
	until  time.Time     // the time up to which strangers have used what is spent on them
	proved chan struct{} // somebody was no stranger; nil while nobody waits for that
}

const (
	// maxGuests are known at once. One more closes the one that has waited longest: a stranger that keeps quiet can't
	// keep others out, and one that belongs here needs two round trips.
	maxGuests = 1024

	// Each connection costs price of the listener's time, which those that prove themselves give back: strangers come at a
	// rate of at most 1/price. Beyond a good number at once the listener rests until all of it has passed, and takes what
	// has come meanwhile in one go, since waking up costs more than a garbage connection itself. BenchmarkFlood of package
	// comm measures what is left.
	price  = 4 * time.Millisecond
	credit = 200 * time.Millisecond
)

// A Guest is a connection that hasn't proved itself yet.
type Guest struct {
	gate       *Gate
	conn       io.Closer
	prev, next *Guest
	gone       bool
}

// Wait returns when another connection may be accepted, or when ctx ends.
func (g *Gate) Wait(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for debt := time.Until(g.until); debt > credit && ctx.Err() == nil; debt = time.Until(g.until) {
		if g.proved == nil {
			g.proved = make(chan struct{})
		}
		proved := g.proved
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

// Enter makes room for a connection.
func (g *Gate) Enter(conn io.Closer) *Guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guests == maxGuests {
		oldest := g.first
		g.remove(oldest)
		oldest.conn.Close()
	}
	if now := time.Now(); g.until.Before(now) {
		g.until = now
	}
	g.until = g.until.Add(price)
	v := &Guest{gate: g, conn: conn, prev: g.last}
	if g.last == nil {
		g.first = v
	} else {
		g.last.next = v
	}
	g.last = v
	g.guests++
	return v
}

// Leave says whether the connection has proved itself. It reports false if the connection was closed meanwhile to make
// room, or has left before.
func (v *Guest) Leave(proved bool) (inTime bool) {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.gone {
		return false
	}
	g.remove(v)
	if proved {
		g.until = g.until.Add(-price)
		if g.proved != nil {
			close(g.proved)
			g.proved = nil
		}
	}
	return true
}

func (g *Gate) remove(v *Guest) {
	if v.prev == nil {
		g.first = v.next
	} else {
		v.prev.next = v.next
	}
	if v.next == nil {
		g.last = v.prev
	} else {
		v.next.prev = v.prev
	}
	v.prev, v.next, v.gone = nil, nil, true
	g.guests--
}
