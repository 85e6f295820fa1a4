package members

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// departures are the ranks that have left a communicator. A rank that leaves tells the others, since the fabric may
// live on, or say goodbye later: ranks that wait for its messages would otherwise wait until their timeout. Ranks that
// share memory see it there, too.
type departures struct {
	some atomic.Bool // a rank has left

	mu   sync.Mutex
	seq  uint64 // the last operation that this rank has announced
	desc fabric.Desc
	gone map[int]departure // by rank
	last error             // a mismatch in this rank's last operation

	why   string // why this rank leaves, if it says so
	toAll bool   // all others are told, not only those with which messages were exchanged
}

// departure is the last operation that a rank which has left took part in.
type departure struct {
	after uint64
	desc  fabric.Desc // zero if it sent no messages in it
	why   string      // the reason that it gave
}

// Announce records, for this rank's fabric and for ranks that leave, which operation this rank is in. It fails if a
// rank has left before that operation, or ran a different one under its number.
func (g *Group) Announce(seq uint64, desc *fabric.Desc) error {
	d := &g.departures
	d.mu.Lock()
	d.seq, d.desc = seq, *desc
	d.mu.Unlock()
	g.Announced.Store(seq)
	g.World.Fab.Announce(g.ID, seq, desc)
	if !d.some.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, x := range d.gone {
		if err := d.verdict(g.Members[r], x); err != nil {
			return err
		}
	}
	return nil
}

// verdict compares a departure with the operation that this rank is in. The caller holds the lock.
func (d *departures) verdict(peer int, x departure) error {
	switch {
	case d.seq > x.after:
		return &fabric.LeftError{Peer: peer, After: x.after, Why: x.why}
	case d.seq == x.after && x.desc != (fabric.Desc{}) && d.desc != x.desc:
		return &fabric.MismatchError{Peer: peer, Seq: d.seq, Local: d.desc, Remote: x.desc}
	}
	return nil
}

// exited is the reason of a rank that leaves because its program ends, if there is no other.
const exited = "its process exited with the communicator open"

// Leaving implements backend.Leaver.
func (g *Group) Leaving(why string) {
	g.departures.toAll = why != "" && len(g.Members) <= MaxAsked
	g.departures.why = Printable(cmp.Or(why, exited))
}

// AnnounceLeave tells the ranks that were met, with which this one has exchanged messages, or all, that it takes part in
// no operation after seq. The goroutine of the collectives calls it.
func (g *Group) AnnounceLeave(seq uint64, met []bool) {
	d := &g.departures
	n := g.NewNotice(Left)
	n.Seq, n.Text = seq, d.why
	d.mu.Lock()
	if d.seq == n.Seq {
		n.Desc = d.desc[:]
	}
	d.mu.Unlock()
	payload := n.Encode()
	for r, m := range g.Members {
		if r != g.Rank && (met[r] || d.toAll) && !g.World.IsLost(m) {
			g.World.Fab.Control(m, payload)
		}
	}
}

// noteDeparture notes that a rank has left. A later operation that waits for it fails now.
func (g *Group) noteDeparture(rank int, n Notice) {
	x := departure{after: n.Seq, why: n.Text}
	copy(x.desc[:], n.Desc)
	d := &g.departures
	d.mu.Lock()
	if d.gone == nil {
		d.gone = map[int]departure{}
	}
	d.gone[rank] = x
	d.some.Store(true)
	err := d.verdict(g.Members[rank], x)
	seq := d.seq
	at := g.In(base.Name(&d.desc))
	at.Seq = seq
	d.mu.Unlock()
	switch e := err.(type) {
	case *fabric.LeftError:
		g.NoteGone(rank, Departed(e)) // the others get the report; all must look for the same survivors
		g.FailFrom(e.After+1, &backend.PeerLostError{Where: at, Peer: rank, Cause: Departed(e)})
	case *fabric.MismatchError:
		g.Fail(g.MismatchWith(e.Peer, e.Local, e.Remote, e.Seq))
	}
}

// left reports whether a rank is known to have left, and after which operation.
func (d *departures) left(rank int) (after uint64, gone bool) {
	if !d.some.Load() {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x, gone := d.gone[rank]
	return x.after, gone
}

// noteLate notes a mismatch in this rank's last operation, which may be found while the rank leaves.
func (d *departures) noteLate(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last = err
	}
}

// WhyLeaving is the reason that [Group.Leaving] got; empty if it wasn't called.
func (g *Group) WhyLeaving() string { return g.departures.why }

// LateMismatch returns a mismatch in an operation of this rank, if it was found after the operation had returned
// without an error, and no later one has returned it.
func (g *Group) LateMismatch() error {
	if g.FailureReturned() {
		return nil
	}
	g.departures.mu.Lock()
	defer g.departures.mu.Unlock()
	if g.departures.last != nil {
		return g.departures.last
	}
	return g.UnreturnedMismatch()
}
