package native

import (
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
)

// splits is what a rank keeps in case a split in which it has succeeded has failed on another rank. That rank never
// becomes a part of the new communicator, and has no number for it.
type splits struct {
	mu     sync.Mutex
	made   []childComm            // the last few
	failed map[int]members.Notice // by rank, its last notice of a failed split
}

// A childComm is a communicator that a split has made. ranks are its members, by ranks of the one
// that was split.
type childComm struct {
	seq   uint64
	id    uint32
	ranks []int
}

// maxChildComms is by how many splits a rank may be ahead of a rank whose split has failed.
const maxChildComms = 16

// notifySplitFailed tells the ranks of the communicator that this one was to make that its split has failed. If they
// are many, the failure of the split itself is sent to all already, and a rank that has gone on finds out by its
// timeout.
func (g *group) notifySplitFailed(ranks []int, seq uint64, why error) {
	if seq == 0 || len(ranks) > members.MaxAsked {
		return
	}
	n := g.NewNotice(members.SplitFailed)
	n.About, n.Text = seq, why.Error()
	payload := n.Encode()
	for _, r := range ranks {
		if r >= 0 && r < len(g.Members) && r != g.Rank && !g.world.IsLost(g.Members[r]) {
			g.world.Fab.Control(g.Members[r], payload)
		}
	}
}

// splitFailed notes that a rank's split has failed. The communicator that this rank made, or is about to
// make, fails.
func (g *group) splitFailed(from int, n members.Notice) {
	s := &g.splits
	s.mu.Lock()
	if s.failed == nil {
		s.failed = map[int]members.Notice{}
	}
	n.Rank = from
	s.failed[from] = n
	i := slices.IndexFunc(s.made, func(o childComm) bool { return o.seq == n.About })
	var o childComm
	if i >= 0 {
		o = s.made[i]
	}
	s.mu.Unlock()
	g.failChild(o, from, n)
}

// addChild notes a communicator of which this rank is about to open its part.
func (g *group) addChild(o childComm) {
	s := &g.splits
	s.mu.Lock()
	if len(s.made) == maxChildComms {
		s.made = slices.Delete(s.made, 0, 1)
	}
	s.made = append(s.made, o)
	var failed []members.Notice
	for _, n := range s.failed {
		if n.About == o.seq {
			failed = append(failed, n)
		}
	}
	s.mu.Unlock()
	for _, n := range failed {
		g.failChild(o, n.Rank, n)
	}
}

// failChild tells a communicator that was split off, or is being joined, that one of its members failed to open its
// part.
func (g *group) failChild(o childComm, rank int, n members.Notice) {
	r := slices.Index(o.ranks, rank)
	if r < 0 {
		return
	}
	peer := g.Members[rank]
	word := members.Notice{Failure: base.Failure{Kind: base.Abort, Rank: r, Text: "it has no part in this communicator: " +
		n.Text}, Comm: o.id, Unopened: true}
	if child := g.world.recipient(peer, word); child != nil {
		child.Notice(peer, word)
	}
}
