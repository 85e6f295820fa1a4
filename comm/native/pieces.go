package native

import (
	"math"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/plan"
)

// Operands that come in pieces are those of the same plan as all others, so that the bits are the same, and other ranks
// needn't have pieces. A step waits for what it touches. Plans through stages go from the first element to the last, a
// chunk at a time; a ring begins at another place for each rank, and so with the whole operand.

// InPieces implements backend.Piecewise.
func (g *group) InPieces(op *backend.Op) bool {
	switch op.Kind {
	case backend.AllReduce, backend.Reduce, backend.Broadcast:
		return len(g.Members) > 1 && !base.Prepares(op)
	}
	return false
}

// whole waits for all of the operands.
func (g *group) whole(j *job) error {
	if j.pieces == nil {
		return nil
	}
	p := j.pieces
	j.pieces = nil
	return p.Await(max(j.InBytes, j.OutBytes))
}

// advance executes steps, whose operands may come in pieces.
func (g *group) advance(steps []step, j *job) error {
	if j.pieces == nil {
		return g.execute(steps, j)
	}
	for i := range steps {
		if err := j.pieces.Await(steps[i].needs); err != nil {
			return err
		}
		if err := g.execute(steps[i:i+1], j); err != nil {
			return err
		}
		j.pieces.Final(steps[i].settled)
	}
	return nil
}

// places fills in what steps need and leave final, for ranks whose memory no other rank touches.
func (g *program) places(rank, world int) {
	in, out := baseOf(plan.In, rank, world), baseOf(plan.Out, rank, world)
	written := math.MaxInt // the first byte of Out that a later step writes
	arrives := math.MaxInt // likewise, of what is received up to the Wait
	for i := len(g.steps) - 1; i >= 0; i-- {
		s := &g.steps[i]
		s.settled = written
		for _, r := range s.src {
			if r.base == in || r.base == out {
				s.needs = max(s.needs, r.off+s.bytes)
			}
		}
		for _, r := range s.dst {
			if r.base == out {
				s.needs, written = max(s.needs, r.off+s.bytes), min(written, r.off)
			}
		}
	}
	for i := range g.steps {
		s := &g.steps[i]
		switch s.kind {
		case plan.Recv, plan.RecvReduce:
			for _, r := range s.dst {
				if r.base == out {
					arrives = min(arrives, r.off)
				}
			}
		case plan.Wait:
			arrives = math.MaxInt
		}
		s.settled = min(s.settled, arrives)
	}
}
