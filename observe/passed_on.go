package observe

import (
	"github.com/chorus-comms/chorus/observe/record"
)

// A rank whose operation has failed may give up other communicators because of it, or the same one: a message that is
// late breaks nothing by itself. Such a rank isn't to blame: what it has waited for tells more, if a dump knows that.

// first returns the first failure that a member has recorded, or nil.
func (g *group) first() *Failure {
	var first *Failure
	for m := range g.views {
		if st := g.views[m].state; st != nil && st.Failure != nil && (first == nil || st.Failure.Time < first.Time) {
			first = st.Failure
		}
	}
	return first
}

// passesOn reports whether a member gave up because another operation of it had failed.
func (g *group) passesOn(member int) bool {
	st := g.views[member].state
	if st == nil || st.Failure == nil || st.Failure.Peer == nil || *st.Failure.Peer != member {
		return false
	}
	switch st.Failure.Kind {
	case record.TimedOut.String(), record.PeerLost.String(), record.Mismatch.String():
		return true
	}
	return false
}

// goesOn reports whether the program has called anything after its operation number i had ended. Messages of one batch
// are called together.
func goesOn(d *Dump, i int) bool {
	over := d.Entries[i].Completed
	for _, later := range d.Entries[i+1:] {
		if over == nil || later.Created >= *over {
			return true
		}
	}
	return false
}

// unknown reports that a communicator has failed though no dump tells because of which rank. One of its ranks gave up
// when its time was over for a message from any rank, or the rank that knows left no dump.
func (x *explainer) unknown(g *group) {
	first := g.first()
	if first == nil || first.Peer == nil || *first.Peer < 0 || *first.Peer >= len(g.members) || !g.passesOn(*first.Peer) {
		return
	}
	peer := *first.Peer
	rank := g.members[peer]
	f := Finding{Kind: KindUnknown, Comm: g.name, Op: nothing, Ranks: []int{}, Detail: first.Message}
	p := x.party(rank, &g.views[peer], nil)
	if s := x.waits[rank]; s != nil {
		f.Op, p.Does, p.At = record.Call(s.entry), record.Call(s.entry), record.CallSite(s.entry.Frames)
		p.Waited = waited(x.dumps[rank], s.entry)
	}
	f.Waiting = []Party{p}
	x.findings = append(x.findings, f)
}
