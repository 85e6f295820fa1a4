package mem

import (
	"context"
	"slices"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Rank is one rank's fabric.
type Rank struct {
	transport.Base
	world *world
}

var (
	_ fabric.Messenger = (*Rank)(nil)
	_ fabric.Sharer    = (*Rank)(nil)
	_ fabric.Placer    = (*Rank)(nil)
)

// Hosts implements fabric.Sharer.
func (f *Rank) Hosts() []int { return slices.Clone(f.world.hosts) }

// Send implements fabric.Fabric.
func (f *Rank) Send(m *fabric.Msg) {
	m.PrivP = f // marks a send, for Cancel
	if to := f.to(m.Peer); to == nil {
		m.Complete(0, m.Peer, f.NoRank(m.Peer))
	} else {
		f.SendTo(to.Match, m)
	}
}

// to returns a rank of the world; nil if there's no such rank.
func (f *Rank) to(rank int) *Rank {
	if !f.Has(rank) {
		return nil
	}
	return f.world.ranks[rank]
}

// Wait implements fabric.Fabric.
func (f *Rank) Wait(m *fabric.Msg, w *fabric.Waiter) error { return transport.Wait(m, w) }

// Cancel implements fabric.Fabric.
func (f *Rank) Cancel(m *fabric.Msg) {
	if m.Done() {
		return
	}
	if m.PrivP != nil {
		f.Own.Cancel(f.to(m.Peer).Match, m, fabric.ErrCanceled)
	} else {
		f.Match.Withdraw(m, fabric.ErrCanceled)
	}
	transport.AwaitDone(m, 0) // it may be being copied, by a goroutine that doesn't wait
}

// Control implements fabric.Messenger.
func (f *Rank) Control(peer int, payload []byte) error {
	if err := f.Addressed(peer, payload); err != nil {
		return err
	}
	if err := f.Match.LostError(peer); err != nil {
		return err
	}
	to := f.to(peer)
	if to == nil {
		return f.NoRank(peer)
	}
	to.Hand(f.Rank(), payload)
	return nil
}

// Close implements fabric.Fabric.
func (f *Rank) Close(context.Context) error {
	f.end(func(m *transport.Matcher) { m.Left(f.Rank()) })
	return nil
}

// Kill ends a rank the way a crash does: its peers lose it, with the cause.
func (f *Rank) Kill(cause error) {
	f.end(func(m *transport.Matcher) { m.Lost(f.Rank(), cause) })
}

func (f *Rank) end(tell func(*transport.Matcher)) {
	if !f.Shut() {
		return
	}
	f.Drop() // first: a peer that is told may close at once, and what is posted here would end by that
	for _, p := range f.world.ranks {
		if p != nil && p != f {
			f.Own.CancelAll(p.Match, fabric.ErrClosed)
			tell(p.Match)
		}
	}
}
