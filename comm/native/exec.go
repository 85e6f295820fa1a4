package native

import (
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// job is a collective as the executor sees it.
type job struct {
	base.Job
	desc   fabric.Desc
	stores string // how large copies into a stage are made: cached, bypass, or as measured
	pieces backend.Pieces
}

// enter begins the collective under way: it announces it to the ranks of this host. It doesn't wait for them if the
// space is ready.
func (g *group) enter(op *backend.Op) error {
	c, j := g.current, &g.job
	g.entered, g.done = true, 0
	g.Waits.Begin(op.Ctx, op.Timeout)
	g.prog = c.plain
	if c.apart != nil && g.apart {
		g.prog = c.apart
	}
	if g.Space == nil {
		return nil
	}
	if c.short != nil { // whose operands come whole
		if err := g.whole(j); err != nil {
			return err
		}
	}
	if c.short != nil && g.repeated {
		if err := g.Space.BeginAgain(g.Waits, g.seq); err != nil {
			return err
		}
		c.short.offer(g)
		return nil
	}
	if err := g.Space.Reserve(c.stage); err != nil {
		return err
	}
	var in, out fabric.Place
	if c.mapped != nil {
		if in, out = g.places(j); in.Mappable() && out.Mappable() { // others may read and write them at any time
			if err := g.whole(j); err != nil {
				return err
			}
		}
	}
	if err := g.Space.Begin(g.Waits, g.seq, &j.desc, in, out); err != nil {
		return err
	}
	switch {
	case c.short != nil:
		c.short.offer(g)
	case c.mapped != nil:
		// Phase 1 exchanges places; all ranks take the mapped program, or none does.
		g.mappable = in.Mappable() && out.Mappable()
		g.Space.Notify(1)
	case g.prog.prologue == 0:
		g.Space.Arrive()
	default:
		if err := g.bind(g.prog, j); err != nil {
			return err
		}
		g.done = g.prog.prologue
		return g.advance(g.prog.steps[:g.done], j)
	}
	return nil
}

// run carries out the rest of it: choose between the programs, then execute.
func (g *group) run(op *backend.Op) error {
	c, j := g.current, &g.job
	if c.short != nil {
		return c.short.gather(g, op)
	}
	if c.mapped != nil && g.mappable {
		all, err := g.allMappable()
		if err != nil {
			return err
		}
		if all {
			g.prog = c.mapped
		}
	}
	prog := g.prog
	op.Algorithm = prog.name
	g.count(prog)
	if prog.part != nil && !j.Average {
		if err := prog.part.run(g); err != nil {
			return err
		}
		g.Space.End()
		return nil
	}
	if g.done == 0 {
		if err := g.bind(prog, j); err != nil {
			return err
		}
	}
	// A program that sends nothing, too, must be told from other ranks', which may; and ranks of other
	// hosts can't see this one's flag.
	if n := len(g.Members); n > 1 && (prog.twoSided || len(g.Local) < n) {
		g.said = j.desc
		if len(g.Local) < n { // else not every rank may come here, and flags tell of what came before
			g.said.Link(&g.past)
		}
		if err := g.Announce(g.seq, &g.said); err != nil {
			return err
		}
	}
	if err := g.advance(prog.steps[g.done:], j); err != nil {
		return err
	}
	if prog.twoSided {
		if err := g.DisagreedBefore(g.seq); err != nil {
			return err
		}
	}
	if g.Space != nil {
		if c.apart != nil && prog != c.mapped {
			g.agree()
		}
		g.Space.End()
	}
	return nil
}

// agree decides whether the cores are far apart for the operations that follow. Each rank takes the vote of the same
// one, given with an operation that all of them are in; what that one has measured is only a guess for the others.
func (g *group) agree() {
	g.apart = g.Space.Vote(0)
	g.Space.SetVote(g.storing.bypasses())
}

// places tells where this rank's buffers are. A buffer that this rank doesn't use is given the
// place of the other one, so that it's no obstacle.
func (g *group) places(j *job) (in, out fabric.Place) {
	if g.placer == nil {
		return
	}
	switch {
	case j.InBytes > 0 && j.OutBytes > 0:
		in = g.placer.Place(j.In, j.InBytes)
		if j.Out == j.In && j.OutBytes == j.InBytes {
			return in, in
		}
		return in, g.placer.Place(j.Out, j.OutBytes)
	case j.InBytes > 0:
		in = g.placer.Place(j.In, j.InBytes)
		return in, in
	default:
		out = g.placer.Place(j.Out, j.OutBytes)
		return out, out
	}
}

func (g *group) allMappable() (bool, error) {
	if err := g.Space.AwaitAll(g.Waits, 1); err != nil {
		return false, err
	}
	for m := range g.Local {
		if in, out := g.Space.Places(m); m != g.Space.Self() && !(in.Mappable() && out.Mappable()) {
			return false, nil
		}
	}
	return true, nil
}

// bind makes ready for a program: it fills the base table, where each buffer of each rank is.
func (g *group) bind(p *program, j *job) error {
	n := len(g.Members)
	g.bound = true
	g.posted = g.posted[:0]
	if p.fills > 0 {
		g.storing.begin(p.fills, j.stores)
	}
	g.base[baseOf(plan.In, g.Rank, n)] = j.In
	g.base[baseOf(plan.Out, g.Rank, n)] = j.Out
	if p.tmp+p.recvTmp > 0 {
		tmp, err := g.scratch.Take(p.tmp + p.recvTmp + 64)
		if err != nil {
			return err
		}
		g.base[baseOf(plan.Tmp, g.Rank, n)] = tmp
		g.recvTmp = unsafe.Add(tmp, (p.tmp+63)&^63)
	}
	if p.needsSpace && p.stage > 0 {
		if p.inSlots {
			for m, r := range g.Local {
				g.base[baseOf(plan.Stage, r, n)] = g.Space.Inline(m)
			}
		} else {
			for m, r := range g.Local {
				g.base[baseOf(plan.Stage, r, n)] = g.Space.Stage(m, p.stage)
			}
		}
	}
	if p.remote() {
		for m, r := range g.Local {
			if r == g.Rank {
				continue
			}
			in, out := g.Space.Places(m)
			size := &g.current.sizes[r]
			var err error
			if size.in > 0 {
				if g.base[baseOf(plan.In, r, n)], err = g.Space.Resolve(g.Waits, m, in, size.in); err != nil {
					return err
				}
			}
			switch {
			case size.out == 0:
			case out == in && size.out == size.in:
				g.base[baseOf(plan.Out, r, n)] = g.base[baseOf(plan.In, r, n)]
			default:
				if g.base[baseOf(plan.Out, r, n)], err = g.Space.Resolve(g.Waits, m, out, size.out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *group) at(r ref) unsafe.Pointer { return unsafe.Add(g.base[r.base], r.off) }

// execute runs steps.
func (g *group) execute(steps []step, j *job) error {
	for i := range steps {
		s := &steps[i]
		var err error
		switch s.kind {
		case plan.Copy:
			src := g.at(s.src[0])
			for i, d := range s.dst {
				dst := g.at(d)
				switch {
				case dst == src:
				case s.fill && i == 0:
					g.storing.fill(dst, src, s.bytes)
				case s.past:
					kern.CopyNT(dst, src, s.bytes)
				default:
					kern.Copy(dst, src, s.bytes)
				}
			}
		case plan.Fold:
			g.fold(s, j)
		case plan.Notify:
			g.Space.Notify(s.phase)
		case plan.Await:
			if s.peer == plan.All {
				err = g.Space.AwaitAll(g.Waits, s.phase)
			} else {
				err = g.Space.Await(g.Waits, g.LocalIndex[s.peer], s.phase)
			}
		case plan.Send, plan.Recv, plan.RecvReduce:
			g.post(s, j)
		case plan.Wait:
			err = g.complete(j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// foldBlock is how many elements are folded before an average divides them, or stores that bypass
// the cache take them to a stage: few enough to stay in the nearest cache.
const foldBlock = 4096

func (g *group) fold(s *step, j *job) {
	dst, src := g.dsts[:len(s.dst)], g.srcs[:len(s.src)]
	for i, r := range s.dst {
		dst[i] = g.at(r)
	}
	for i, r := range s.src {
		src[i] = g.at(r)
	}
	average, bypass := j.Average && s.final, s.fill && g.storing.bypasses()
	if !average && !bypass {
		kern.Reduce(j.Kernel, j.DType, dst, src, s.n)
		return
	}
	for done := 0; done < s.n; done += foldBlock {
		if done > 0 { // not after the last block: no pointer may leave its memory
			forward(dst, foldBlock*j.Elem)
			forward(src, foldBlock*j.Elem)
		}
		n := min(foldBlock, s.n-done)
		kern.Reduce(j.Kernel, j.DType, dst[:1], src, n)
		if average {
			kern.Average(j.DType, dst[0], n, len(g.Members))
		}
		for _, d := range dst[1:] {
			put(bypass, d, dst[0], n*j.Elem)
		}
	}
}

func forward(ps []unsafe.Pointer, bytes int) {
	for i := range ps {
		ps[i] = unsafe.Add(ps[i], bytes)
	}
}

// post hands a message of the step to the fabric.
func (g *group) post(s *step, j *job) {
	k := len(g.posted)
	if k == len(g.msgs) {
		g.msgs = append(g.msgs, new(fabric.Msg))
	}
	m := g.msgs[k]
	g.posted = append(g.posted, s)
	g.met[s.peer] = true
	m.Reset(g.Waits)
	m.Peer = g.Members[s.peer]
	m.Key = fabric.Key{Comm: g.ID, Class: fabric.Collective, Tag: g.seq}
	m.Desc = g.said
	m.Len = s.bytes
	switch s.kind {
	case plan.Send:
		m.Buf = g.at(s.src[0])
		g.world.Fab.Send(m)
	case plan.Recv:
		m.Buf = g.at(s.dst[0])
		g.world.Fab.Recv(m)
	default:
		m.Buf = unsafe.Add(g.recvTmp, s.recvTmp)
		g.world.Fab.Recv(m)
	}
}

// complete waits for all that was posted, and reduces what arrived for that: first
// for what comes in, so that it's reduced while it's hot and while the rest moves.
func (g *group) complete(j *job) error {
	for _, sends := range [2]bool{false, true} {
		for k, s := range g.posted {
			if s.kind == plan.Send != sends {
				continue
			}
			m := g.msgs[k]
			if err := g.world.Fab.Wait(m, g.Waits); err != nil {
				return err
			}
			if !sends {
				if err := g.arrived(s, m, j); err != nil {
					return err
				}
			}
			m.Buf = nil // so that it doesn't outlive its owner's interest in it
		}
	}
	g.posted = g.posted[:0]
	return nil
}

// arrived reduces a message that has come, if it's one to be reduced.
func (g *group) arrived(s *step, m *fabric.Msg, j *job) error {
	if m.N != m.Len {
		return &fabric.TruncatedError{Peer: m.From, Sent: m.N, Capacity: m.Len}
	}
	if s.kind == plan.RecvReduce {
		dst, src := g.dsts[:1], g.srcs[:2]
		dst[0], src[0], src[1] = g.at(s.dst[0]), g.at(s.src[0]), m.Buf
		kern.Reduce(j.Kernel, j.DType, dst, src, s.n)
		if s.final && j.Average {
			kern.Average(j.DType, dst[0], s.n, len(g.Members))
		}
	}
	return nil
}

// withdraw takes back every message of a failed operation, after which the
// fabric no longer touches any buffer of it.
func (g *group) withdraw() {
	for k := range g.posted {
		if m := g.msgs[k]; !m.Done() {
			g.world.Fab.Cancel(m)
		}
	}
	g.posted = g.posted[:0]
}
