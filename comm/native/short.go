package native

import (
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// Small all-reduces run here, without a table of base addresses: filling and emptying it would take a large part of
// their time.

// shortRanks is the most ranks that such programs have.
const shortRanks = 8

// shortProgram is a program in which each rank copies its input to its stage, tells the others, waits for them and
// reduces what all have there.
type shortProgram struct {
	bytes, n      int // of the input
	offered, come uint32
	stage         int // bytes of stage, or 0: the input lies beside the flags
}

// asShort returns a rank's steps as a short program; nil if they are none.
func asShort(steps []step, rank, world int) *shortProgram {
	if len(steps) != 4 || world > shortRanks {
		return nil
	}
	in, notify, await, out := &steps[0], &steps[1], &steps[2], &steps[3]
	start := func(b plan.Buf, r int) ref { return ref{base: baseOf(b, r, world)} }
	if in.kind != plan.Copy || in.fill || in.past || len(in.dst) != 1 || in.dst[0] != start(plan.Stage, rank) ||
		in.src[0] != start(plan.In, rank) ||
		notify.kind != plan.Notify || await.kind != plan.Await || await.peer != plan.All ||
		out.kind != plan.Fold || !out.final || out.n > foldBlock || len(out.dst) != 1 || out.dst[0] != start(plan.Out,
		rank) || len(out.src) != world {
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
	return &shortProgram{bytes: in.bytes, n: out.n, offered: notify.phase, come: await.phase}
}

// at returns where a member's input lies.
func (b *shortProgram) at(s *fabric.Space, member int) unsafe.Pointer {
	if b.stage == 0 {
		return s.Inline(member)
	}
	return s.Stage(member, b.stage)
}

// offer runs the program up to the flag.
func (b *shortProgram) offer(g *group) {
	s := g.Space
	kern.Copy(b.at(s, s.Self()), g.job.In, b.bytes)
	s.Notify(b.offered)
}

// gather runs the rest of it.
func (b *shortProgram) gather(g *group, op *backend.Op) error {
	s, j := g.Space, &g.job
	op.Algorithm = g.prog.name
	g.count(g.prog)
	if err := s.AwaitAll(g.Waits, b.come); err != nil {
		return err
	}
	var src [shortRanks]unsafe.Pointer
	dst := [1]unsafe.Pointer{j.Out}
	n, self := len(g.Members), s.Self()
	for m, r := range g.Local {
		if src[r] = j.In; m != self {
			src[r] = b.at(s, m)
		}
	}
	kern.Reduce(j.Kernel, j.DType, dst[:], src[:n], b.n)
	if j.Average {
		kern.Average(j.DType, j.Out, b.n, n)
	}
	s.End()
	return nil
}

// part is a program for mapped memory, after the exchange of places: a rank reduces its part of all inputs into all
// outputs, tells the others, and waits for them.
type part struct {
	off, n int // bytes, elements
	done   uint32
}

// partly returns a rank's steps as such a program; nil if they are none.
func partly(steps []step, world int) *part {
	if len(steps) != 3 || world > shortRanks {
		return nil
	}
	sum, notify, await := &steps[0], &steps[1], &steps[2]
	if sum.kind != plan.Fold || !sum.final || sum.fill || len(sum.dst) != world || len(sum.src) != world ||
		notify.kind != plan.Notify || await.kind != plan.Await || await.peer != plan.All || await.phase != notify.phase {
		return nil
	}
	off := sum.src[0].off
	for r := range world {
		if sum.src[r] != (ref{baseOf(plan.In, r, world), off}) || sum.dst[r] != (ref{baseOf(plan.Out, r, world), off}) {
			return nil
		}
	}
	return &part{off: off, n: sum.n, done: notify.phase}
}

// run runs the program.
func (p *part) run(g *group) error {
	s, j := g.Space, &g.job
	var dst, src [shortRanks]unsafe.Pointer
	self := s.Self()
	for m, r := range g.Local {
		in, out := j.In, j.Out
		if m != self {
			at, to := s.Places(m)
			var err error
			if in, err = s.Resolve(g.Waits, m, at, j.InBytes); err != nil {
				return err
			}
			if out = in; to != at {
				if out, err = s.Resolve(g.Waits, m, to, j.OutBytes); err != nil {
					return err
				}
			}
		}
		src[r], dst[r] = unsafe.Add(in, p.off), unsafe.Add(out, p.off)
	}
	n := len(g.Members)
	kern.Reduce(j.Kernel, j.DType, dst[:n], src[:n], p.n)
	s.Notify(p.done)
	return s.AwaitAll(g.Waits, p.done)
}
