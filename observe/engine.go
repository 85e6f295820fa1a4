package observe

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/observe/record"
)

// engineWaits says what an engine's call waits for. Ranks are the communicator's.
func engineWaits(c *record.EngineCall) string {
	of := "any rank"
	if c.Peer != nil {
		of = fmt.Sprintf("rank %d", *c.Peer)
	}
	return fmt.Sprintf("%s of %s", c.Waits, of)
}

// engineStuck returns the call in which a member's engine waits; nil if it doesn't.
func engineStuck(st *CommState) *record.EngineCall {
	if st == nil {
		return nil
	}
	for i := range st.Engine {
		c := &st.Engine[i]
		if c.Waits != "" && (c.Peer == nil || *c.Peer >= 0 && *c.Peer < len(st.Members)) {
			return c
		}
	}
	return nil
}

// engine says what a member's engine waits for; "" if it doesn't.
func (v *view) engine() string {
	if c := engineStuck(v.state); c != nil {
		return fmt.Sprintf("; its engine's %s waits for %s", c.Op, engineWaits(c))
	}
	return ""
}

// engines finds out whose engine others wait for in an operation in which all have arrived: the one that a chain of
// waiting engines leads to.
func (x *explainer) engines(s *stall) {
	g := s.group
	if g == nil || len(s.missing) > 0 {
		return
	}
	f := Finding{Kind: KindEngine, Comm: g.name, Op: record.Call(s.entry), Seq: s.seq}
	for m := range g.views {
		if engineStuck(g.views[m].state) == nil {
			continue
		}
		at := m // the end of the chain
		for range g.views {
			c := engineStuck(g.views[at].state)
			if c == nil || c.Peer == nil {
				break
			}
			at = *c.Peer
		}
		if rank := g.members[at]; !slices.Contains(f.Ranks, rank) {
			f.Ranks = append(f.Ranks, rank)
			f.Culprits = append(f.Culprits, x.party(rank, &g.views[at], s))
		}
	}
	if len(f.Ranks) == 0 {
		return
	}
	slices.Sort(f.Ranks)
	for _, p := range s.waiting {
		if !slices.ContainsFunc(p.Ranks, func(r int) bool { return !slices.Contains(f.Ranks, r) }) {
			continue
		}
		f.Waiting = append(f.Waiting, p)
	}
	x.findings = append(x.findings, f)
}
