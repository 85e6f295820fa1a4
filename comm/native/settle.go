package native

import (
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
)

// settleTime bounds how long a failed operation waits for ranks of this host that may
// still be at work on its tensors. Such a rank stops at its next wait, so only one
// that doesn't run at all takes longer.
const settleTime = time.Second

// settle leaves the memory that the ranks of the host share, after a failed operation, and returns
// when no other rank touches the operation's tensors any more. The caller may then reuse them. If a
// rank doesn't confirm that in time, the error says so, and the tensors are kept.
func (g *group) settle(op *backend.Op, err error) error {
	if g.Space == nil {
		return err
	}
	g.Space.Leave(true, "")
	unsettled := g.Space.Settle(settleTime, g.world.IsLost)
	if len(unsettled) == 0 {
		return err
	}
	for i, r := range unsettled {
		unsettled[i] = g.RankOf(r)
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
