package native

import (
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// brief is a program in which each rank copies its input to its stage, tells the others, waits for them and reduces what all have there:
// what small all-reduces do. It's carried out here, without a table of where everything is, which takes longer to fill and to
// empty again than such an operation has to spare.
type brief struct {
	bytes, n      int // of the input
	offered, come uint32
	stage         int // bytes of stage, or 0: the input lies beside the flags
}

// briefRanks is the most ranks that brief programs have.
const briefRanks = 8

// briefly returns a rank's steps as a brief program; nil if they are none.
func briefly(steps []step, rank, world int) *brief {
	if len(steps) != 4 || world > briefRanks {
		return nil
	}
	in, notify, await, out := &steps[0], &steps[1], &steps[2], &steps[3]
	start := func(b plan.Buf, r int) ref { return ref{base: baseOf(b, r, world)} }
	if in.kind != plan.Copy || in.fill || in.past || len(in.dst) != 1 || in.dst[0] != start(plan.Stage, rank) || in.src[0] != start(plan.In, rank) ||
		notify.kind != plan.Notify || await.kind != plan.Await || await.peer != plan.All ||
		out.kind != plan.Fold || !out.final || out.n > foldBlock || len(out.dst) != 1 || out.dst[0] != start(plan.Out, rank) || len(out.src) != world {
		return nil
	}
	for r, s := range out.src {
		from := plan.Stage
		if r == rank {
			from = plan.In
		}
		if s != start(from, r) {
			return nil
		}
	}
	return &brief{bytes: in.bytes, n: out.n, offered: notify.phase, come: await.phase}
}

// at returns where a member's input lies.
func (b *brief) at(s *fabric.Space, member int) unsafe.Pointer {
	if b.stage == 0 {
		return s.Inline(member)
	}
	return s.Stage(member, b.stage)
}

// offer runs the program up to the flag.
func (b *brief) offer(g *group) {
	s := g.space
	kern.Copy(b.at(s, s.Self()), g.job.in, b.bytes)
	s.Notify(b.offered)
}

// gather runs the rest of it.
func (b *brief) gather(g *group, op *backend.Op) error {
	s, j := g.space, &g.job
	op.Algorithm = g.prog.name
	g.count(g.prog)
	if err := s.AwaitAll(g.waiter, b.come); err != nil {
		return err
	}
	var src [briefRanks]unsafe.Pointer
	dst := [1]unsafe.Pointer{j.out}
	n, self := len(g.members), s.Self()
	for m := range src[:n] {
		if src[m] = j.in; m != self {
			src[m] = b.at(s, m)
		}
	}
	kern.Reduce(j.red, j.dt, dst[:], src[:n], b.n)
	if j.average {
		kern.Average(j.dt, j.out, b.n, n)
	}
	s.End()
	return nil
}
