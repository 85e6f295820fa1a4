package native

import (
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
)

// traffic counts collectives. Only the one that runs writes, so that no write needs to be locked.
type traffic struct{ mapped, staged atomic.Uint64 }

func (g *group) count(p *program) {
	if len(g.members) == 1 || len(p.steps) == 0 {
		return
	}
	n := &g.traffic.staged
	if p.remote && !p.twoSided {
		n = &g.traffic.mapped
	}
	n.Store(n.Load() + 1)
}

// Traffic implements backend.Counter.
func (g *group) Traffic() backend.Traffic {
	return backend.Traffic{Mapped: g.traffic.mapped.Load(), Staged: g.traffic.staged.Load()}
}
