package plan

import (
	"errors"
	"fmt"
	"slices"
)

// Prove generates the plans of all ranks for a request and proves them. An
// uneven all-to-all, whose ranks have requests of their own, needs ProveRequests.
func Prove(a Algorithm, q Request) error {
	if q.SendCounts != nil || q.RecvCounts != nil {
		return errors.New("plan: each rank of an uneven all_to_all has its own request: use ProveRequests")
	}
	if q.World < 1 {
		return fmt.Errorf("plan: world of %d ranks", q.World)
	}
	qs := make([]Request, q.World)
	for r := range qs {
		qs[r] = q
		qs[r].Rank = r
	}
	return ProveRequests(a, qs)
}

// ProveRequests generates the plan of each rank's request and proves them.
func ProveRequests(a Algorithm, qs []Request) error {
	plans := make([]*Plan, len(qs))
	for r, q := range qs {
		p, err := a.Plan(q)
		if err != nil {
			return err
		}
		plans[r] = p
	}
	return ProvePlans(plans)
}

// ProvePlans runs the plans of all ranks of a world symbolically, plans[r] being
// that of rank r, and returns nil if they are right however the ranks are
// scheduled and the messages delayed:
//
//   - they end, even if a Send completes only once its Recv has been posted;
//   - every place lies inside its buffer, no posted memory is touched before its
//     Wait, and both ends of a message agree on its size;
//   - accesses to memory that ranks share are ordered by Notify and Await or by
//     messages, counting each rank's caller as using In and Out before the plan
//     starts and after it ends;
//   - every element of every Out holds exactly the contributions that the
//     collective defines, each once, combined in the same order on all ranks and
//     marked Final once, by the last step that reduces it;
//   - In is not written, except where it is Out;
//   - phases grow; only ranks of one host refer to each other's memory;
//   - no rank leaves a barrier before all have entered.
//
// The error names rank, step and what the step says.
func ProvePlans(plans []*Plan) error {
	p, err := newProver(plans)
	if err != nil {
		return err
	}
	if err := p.run(); err != nil {
		return err
	}
	return p.checkResult()
}

// prover runs all ranks in one arbitrary order. Values are symbols, so that the
// order of two accesses matters only if nothing orders them, and that is an error
// in itself: found by vector clocks, in whichever order they happen to run.
type prover struct {
	plans  []*Plan
	n      int
	values *values
	mem    []memory // of rank r and Buf b: [4*r+b]
	ranks  []rankState
	links  map[[2]int32]*linkState
	runs   []run // of the step at hand
	histories
}

type rankState struct {
	pc       int
	done     bool
	clock    vector // clock[r]: what happens at this rank comes after that much of rank r
	released vector // copy of clock that the last release made, while still current
	phase    uint32
	notified []mark // in the order of their phases
	posted   []*post
	open     int // posted transfers that have no partner yet
}

// mark is a phase and what its rank had seen by then.
type mark struct {
	phase uint32
	clock vector
}

// post is a transfer between its step and the Wait that completes it.
type post struct {
	rank, step int
	s          *Step
	sent       vector // Send: what the receiver learns
	partner    *post
}

// linkState holds what has been posted between two ranks and not been matched.
type linkState struct{ sends, recvs []*post }

func newProver(plans []*Plan) (*prover, error) {
	p := &prover{plans: plans, n: len(plans), values: newValues(len(plans)),
		mem: make([]memory, 4*len(plans)), ranks: make([]rankState, len(plans)), links: map[[2]int32]*linkState{},
		histories: histories{sets: make([][]epoch, 1)}}
	if len(plans) == 0 {
		return nil, errors.New("plan: a world of 0 ranks has no plans")
	}
	stage, mapped := 0, false
	for r, pl := range plans {
		if pl == nil {
			return nil, fmt.Errorf("plan: no plan for rank %d", r)
		}
		if err := pl.Request.Validate(); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if pl.Request.World != len(plans) || pl.Request.Rank != r {
			return nil, fmt.Errorf("plan: the plan in place %d of %d is that of rank %d of %d", r, len(plans), pl.Request.Rank,
				pl.Request.World)
		}
		if !pl.Request.alike(plans[0].Request) {
			return nil, fmt.Errorf("plan: rank %d has another operation than rank 0", r)
		}
		if pl.Stage < 0 || pl.Tmp < 0 || pl.Stage > pl.Request.StageBytes/max(1, pl.Request.ElemSize) {
			return nil, fmt.Errorf("plan: rank %d needs %d elements of stage and %d of scratch, and there are %d bytes of stage",
				r, pl.Stage, pl.Tmp, pl.Request.StageBytes)
		}
		stage, mapped = max(stage, pl.Stage), mapped || pl.Mapped
	}
	for r, pl := range plans {
		if pl.Mapped != mapped {
			return nil, fmt.Errorf("plan: rank %d says mapped=%v, others %v", r, pl.Mapped, mapped)
		}
		clock := make(vector, p.n)
		clock[r] = 1 // the caller's own accesses before the start
		p.ranks[r].clock = clock
		p.initMemory(r, stage)
	}
	return p, nil
}

// alike reports whether two ranks' requests are of one operation.
func (q Request) alike(o Request) bool {
	if q.Collective != o.Collective || q.Root != o.Root || q.InPlace != o.InPlace || q.Count != o.Count ||
		q.ElemSize != o.ElemSize ||
		(q.Counts == nil) != (o.Counts == nil) || !slices.Equal(q.Counts, o.Counts) ||
		(q.SendCounts == nil) != (o.SendCounts == nil) {
		return false
	}
	for r := range q.World {
		if q.Topo.Same(r, q.Rank) != o.Topo.Same(r, q.Rank) {
			return false
		}
	}
	return true
}

func (p *prover) initMemory(r, stage int) {
	q := &p.plans[r].Request
	in, out := q.Sizes()
	start := epoch{int32(r), 1}
	for b, size := range [...]int{In: in, Out: out, Tmp: p.plans[r].Tmp, Stage: stage} {
		p.mem[4*r+b].init(size, start)
	}
	at := q.home(Ref{In, int32(r), 0})
	if in > 0 {
		p.mem[4*r+int(at.Buf)].set(at.Off, at.Off+in, value{leaf(r), -at.Off}, start)
	}
}

// errorf names the rank and the step at fault.
func (p *prover) errorf(rank, step int, format string, args ...any) error {
	pl := p.plans[rank]
	where := "end"
	if step < len(pl.Steps) {
		where = fmt.Sprintf("step %d (%s)", step, pl.StepText(step))
	}
	return fmt.Errorf("plan: %s %s, world %d: rank %d, %s: %s", pl.Request.Collective, pl.Algorithm, p.n, rank, where,
		fmt.Sprintf(format, args...))
}

func (p *prover) run() error {
	for left := p.n; left > 0; {
		progress := false
		for r := range p.ranks {
			st := &p.ranks[r]
			for !st.done {
				moved, err := p.step(r)
				if err != nil {
					return err
				}
				if !moved {
					break
				}
				progress = true
				if st.done {
					left--
				}
			}
		}
		if !progress {
			return p.deadlock()
		}
	}
	for _, l := range p.links {
		for _, left := range [][]*post{l.sends, l.recvs} {
			if len(left) > 0 {
				return p.errorf(left[0].rank, left[0].step, "nothing on the other side answers it")
			}
		}
	}
	return nil
}

// deadlock explains why no rank can go on.
func (p *prover) deadlock() error {
	for r := range p.ranks {
		st := &p.ranks[r]
		if st.done {
			continue
		}
		s := &p.plans[r].Steps[st.pc]
		if s.Kind == Wait {
			for _, po := range st.posted {
				if po.partner == nil {
					return p.errorf(r, st.pc, "deadlock: step %d (%s) finds no partner", po.step, p.plans[r].StepText(po.step))
				}
			}
		}
		return p.errorf(r, st.pc, "deadlock: the phase is never reached")
	}
	return nil
}

// step runs the next step of a rank, or ends its plan. It returns false if the
// rank must wait.
func (p *prover) step(r int) (bool, error) {
	st, pl := &p.ranks[r], p.plans[r]
	if st.pc == len(pl.Steps) {
		st.done = true
		return true, p.end(r)
	}
	s := &pl.Steps[st.pc]
	if err := p.checkStep(r, s); err != nil {
		return false, p.errorf(r, st.pc, "%v", err)
	}
	var err error
	switch s.Kind {
	case Send, Recv, RecvReduce:
		err = p.post(r, s)
	case Wait:
		if st.open > 0 {
			return false, nil
		}
		p.complete(r)
	case Copy, Fold:
		err = p.local(r, s)
	case Notify:
		st.phase = s.Phase
		st.notified = append(st.notified, mark{s.Phase, p.release(r)})
	case Await:
		return p.await(r, s)
	}
	st.pc++
	return true, err
}

// span returns the memory of a place and its range there.
func (p *prover) span(ref Ref, n int) (m *memory, lo, hi int) {
	at := p.plans[ref.Rank].Request.home(ref)
	return &p.mem[4*int(at.Rank)+int(at.Buf)], at.Off, at.Off + n
}

// local runs a Copy or a Fold.
func (p *prover) local(r int, s *Step) error {
	pc := p.ranks[r].pc
	if s.N == 0 {
		return nil
	}
	for _, ref := range s.Src {
		if err := p.access(r, pc, ref, s.N, false); err != nil {
			return err
		}
	}
	if err := p.overlaps(r, pc, s); err != nil {
		return err
	}
	p.runs = p.runs[:0]
	if s.Kind == Copy {
		m, lo, hi := p.span(s.Src[0], s.N)
		p.runs = m.read(p.runs, lo, hi)
	} else if err := p.fold(r, pc, s, s.Src, nil); err != nil {
		return err
	}
	for _, ref := range s.Dst {
		if err := p.access(r, pc, ref, s.N, true); err != nil {
			return err
		}
		m, lo, _ := p.span(ref, s.N)
		m.write(lo, p.runs, epoch{int32(r), p.ranks[r].clock[r]})
	}
	p.ranks[r].released = nil
	return nil
}

// fold appends to p.runs the combination of places, with the runs of a message
// as the last operand if there is one.
func (p *prover) fold(r, pc int, s *Step, src []Ref, message []run) error {
	operands := make([]value, 0, len(src)+1)
	cursors := make([]cursor, len(src))
	for i, ref := range src {
		m, lo, _ := p.span(ref, s.N)
		cursors[i] = m.cursor(lo)
	}
	for pos, next := 0, 0; pos < s.N; {
		width := s.N - pos
		operands = operands[:0]
		for i := range cursors {
			v, left := cursors[i].at(pos)
			operands, width = append(operands, v), min(width, left)
		}
		if message != nil {
			for message[next].hi <= pos {
				next++
			}
			operands, width = append(operands, message[next].v), min(width, message[next].hi-pos)
		}
		v, err := p.values.fold(operands, s.Final)
		if err != nil {
			return p.errorf(r, pc, "element %d: %v", pos, err)
		}
		p.runs = appendRun(p.runs, run{pos, pos + width, v})
		pos += width
	}
	return nil
}

// end lets the caller of a rank use its buffers again.
func (p *prover) end(r int) error {
	st, pl := &p.ranks[r], p.plans[r]
	if len(st.posted) > 0 {
		return p.errorf(r, st.posted[0].step, "no Wait completes it")
	}
	now := epoch{int32(r), st.clock[r]}
	for _, b := range []Buf{In, Out} {
		m := &p.mem[4*r+int(b)]
		if m.size == 0 {
			continue
		}
		if c := m.conflict(&p.histories, 0, m.size, true, r, st.clock); c != nil {
			return p.errorf(r, len(pl.Steps), "rank %d may still use its %s: nothing says that it has finished", c.rank, b)
		}
		m.mark(&p.histories, 0, m.size, true, now, st.clock)
	}
	if pl.Request.Collective == Barrier {
		for s, seen := range st.clock {
			if seen == 0 {
				return p.errorf(r, len(pl.Steps), "it leaves the barrier without knowing that rank %d has entered", s)
			}
		}
	}
	return nil
}
