package native

import (
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// A program is brief if each rank copies its input to its stage, tells the others, waits for them and reduces what all have there: what
// small all-reduces do. It's carried out here without a table of where everything is, which takes longer to fill and to
// empty again than such an operation has to spare.

// briefRanks is the most ranks that brief programs have.
const briefRanks = 8

// briefly reports whether a rank's steps are a brief program's.
func briefly(steps []step, rank, world int) bool {
	if len(steps) != 4 || world > briefRanks {
		return false
	}
	in, notify, await, out := &steps[0], &steps[1], &steps[2], &steps[3]
	start := func(b plan.Buf, r int) ref { return ref{base: baseOf(b, r, world)} }
	if in.kind != plan.Copy || in.fill || in.past || len(in.dst) != 1 || in.dst[0] != start(plan.Stage, rank) || in.src[0] != start(plan.In, rank) ||
		notify.kind != plan.Notify || await.kind != plan.Await || await.peer != plan.All ||
		out.kind != plan.Fold || !out.final || out.n > foldBlock || len(out.dst) != 1 || out.dst[0] != start(plan.Out, rank) || len(out.src) != world {
		return false
	}
	for r, s := range out.src {
		if b := plan.Stage; r == rank && s != start(plan.In, r) || r != rank && s != start(b, r) {
			return false
		}
	}
	return true
}

// stage returns where a member's input lies in a brief program.
func (g *group) stage(p *program, member int) unsafe.Pointer {
	if p.inSlots {
		return g.space.Inline(member)
	}
	return g.space.Stage(member, p.stage)
}

// offer runs a brief program up to the flag.
func (g *group) offer(p *program, j *job) {
	kern.Copy(g.stage(p, g.space.Self()), j.in, p.steps[0].bytes)
	g.space.Notify(p.steps[1].phase)
}

// gather runs the rest of it.
func (g *group) gather(op *backend.Op, p *program, j *job) error {
	op.Algorithm = p.name
	g.count(p)
	if err := g.space.AwaitAll(g.waiter, p.steps[2].phase); err != nil {
		return err
	}
	var src [briefRanks]unsafe.Pointer
	dst := [1]unsafe.Pointer{j.out}
	n := len(g.members)
	for m := range n {
		src[m] = j.in
		if m != g.space.Self() {
			src[m] = g.stage(p, m)
		}
	}
	sum := &p.steps[3]
	kern.Reduce(j.red, j.dt, dst[:], src[:n], sum.n)
	if j.average {
		kern.Average(j.dt, j.out, sum.n, n)
	}
	g.space.End()
	return nil
}
