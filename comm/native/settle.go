package native

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// settleTime bounds how long a failed operation waits for ranks of this host that may
// still be at work on its tensors. Such a rank stops at its next wait, so only one
// that doesn't run at all takes longer.
const settleTime = time.Second

// settle leaves the memory that the ranks of the host share, after a failed operation, and returns
// when no other rank touches the operation's tensors any more. The caller may then reuse them. If a
// rank doesn't confirm that in time, the error says so, and the tensors are kept.
func (g *group) settle(op *backend.Op, err error) error {
	if g.space == nil {
		return err
	}
	g.space.Leave(true, "")
	unsettled := g.space.Settle(settleTime, g.world.isLost)
	if len(unsettled) == 0 {
		return err
	}
	for i, r := range unsettled {
		unsettled[i] = g.rankOf(r)
	}
	slices.Sort(unsettled)
	keep(op, g.scratch)
	g.scratch = base.Scratch{}
	return &backend.UnsettledError{Err: err, Ranks: unsettled}
}

// kept is memory that may not be used again, because another process may write to it at any time.
var kept struct {
	sync.Mutex
	list []any
}

func keep(op *backend.Op, scratch any) {
	kept.Lock()
	defer kept.Unlock()
	kept.list = append(kept.list, op.In, op.Out, slices.Clone(op.Ins), slices.Clone(op.Outs), scratch)
}

// checkLast compares this rank's last operations, before it leaves, with those of the other ranks
// of the host under the same numbers, as far as they have arrived. Of two ranks that disagree, the
// one that arrives later finds out.
func (g *group) checkLast() error {
	var mm *fabric.MismatchError
	if g.space == nil || g.Raised() || !errors.As(g.space.CheckLast(), &mm) {
		return nil
	}
	err := g.mismatch(mm.Peer, mm.Local, mm.Remote, mm.Seq)
	g.Fail(err)
	return err
}

// isLost reports whether the fabric has lost a rank.
func (w *world) isLost(rank int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[rank] != nil
}

// departed says how a rank has left.
func departed(e *fabric.LeftError) string {
	if e.Failed {
		return fmt.Sprintf("it gave up in operation #%d and did not say why", e.After)
	}
	if e.Why != "" {
		return fmt.Sprintf("%s, after operation #%d", printable(e.Why), e.After)
	}
	return fmt.Sprintf("it finalized the communicator after operation #%d", e.After)
}
