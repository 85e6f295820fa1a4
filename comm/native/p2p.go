package native

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// lostIn breaks the communicator because a peer is lost that a send or receive needs.
func (g *group) lostIn(op *backend.Op, lost *fabric.PeerError) error {
	peer := g.RankOf(lost.Peer)
	// Everyone is gone; the fabric knows who closed first, which may be one that had left another rank.
	if op.Peer == backend.AnySource {
		if who := g.world.culprit(g); who >= 0 {
			peer = who
		}
		if len(g.Members) > 2 {
			lost = &fabric.PeerError{Peer: lost.Peer, Err: fmt.Errorf("%w, and no other rank is left", lost.Err)}
		}
	}
	if peer < 0 { // then any member is
		peer = (g.Rank + 1) % len(g.Members)
	}
	return g.LoseLink(g.Of(op), peer, lost)
}
