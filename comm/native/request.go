package native

import (
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// request fills q and j from op.
func (g *group) request(op *backend.Op, t *tuning, q *plan.Request, j *job) {
	*q = plan.Request{World: len(g.Members), Rank: g.Rank, Topo: g.topo, StageBytes: g.stageBytes, ChunkBytes: t.chunk}
	j.stores = t.prefer.stores
	j.Lower(op, q)
}

// describe returns the description of an operation of c's shape.
func (g *group) describe(op *backend.Op, c *compiled, dt dtype.DType) *fabric.Desc {
	k := base.Description{Kind: op.Kind, DType: dt, Reduce: op.Reduce.Kind, Purpose: g.purpose}
	if k != c.descOf {
		k.Fill(&c.desc, &c.req, c.shape.tuned.hash())
		c.descOf = k
	}
	return &c.desc
}

// own runs a collective of the communicator's own.
func (g *group) own(p base.Purpose, op *backend.Op) error {
	g.purpose = p
	defer func() { g.purpose = 0 }()
	if err := g.Submit(op); err != nil {
		return err
	}
	return g.Wait(op)
}
