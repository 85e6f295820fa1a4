package native

import (
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/sys"
)

// traffic counts collectives. Only the one that runs writes, so that no write needs to be locked. Windows count their
// own.
type traffic struct {
	mapped, staged uint64 // sys.StoreRelaxed
}

func (g *group) count(p *program) {
	if len(g.Members) == 1 || len(p.steps) == 0 {
		return
	}
	n := &g.traffic.staged
	if p.remote() && !p.twoSided {
		n = &g.traffic.mapped
	}
	sys.StoreRelaxed(n, *n+1)
}

// Traffic implements backend.TrafficCounter.
func (g *group) Traffic() backend.Traffic {
	t, w := &g.traffic, &g.windows
	return backend.Traffic{Mapped: atomic.LoadUint64(&t.mapped) + w.Mapped.Load(),
		Staged: atomic.LoadUint64(&t.staged) + w.Staged.Load()}
}
