package plan

import (
	"errors"
	"fmt"
)

// checkStep checks what can be seen from the step alone.
func (p *prover) checkStep(r int, s *Step) error {
	if err := s.checkForm(); err != nil {
		return err
	}
	pl := p.plans[r]
	peer := int(s.Peer)
	switch s.Kind {
	case Send, Recv, RecvReduce:
		if peer < 0 || peer >= p.n || peer == r {
			return fmt.Errorf("there is no peer %d", peer)
		}
	case Await:
		if peer != All && (peer < 0 || peer >= p.n || peer == r || !pl.Request.Topo.Same(r, peer)) {
			return fmt.Errorf("rank %d is not another rank of this host", peer)
		}
	case Notify:
		if s.Phase <= p.ranks[r].phase {
			return fmt.Errorf("phase %d after %d: phases must grow", s.Phase, p.ranks[r].phase)
		}
	}
	if s.N < 0 {
		return fmt.Errorf("%d elements", s.N)
	}
	twoSided := s.Kind <= RecvReduce
	for _, ref := range s.Src {
		if err := p.checkRef(r, ref, s.N, twoSided, false); err != nil {
			return err
		}
	}
	for _, ref := range s.Dst {
		if err := p.checkRef(r, ref, s.N, twoSided, true); err != nil {
			return err
		}
	}
	return nil
}

func (p *prover) checkRef(r int, ref Ref, n int, twoSided, write bool) error {
	pl, of := p.plans[r], int(ref.Rank)
	if of < 0 || of >= p.n || ref.Buf > Stage {
		return fmt.Errorf("there is no %s of rank %d", ref.Buf, of)
	}
	if of != r {
		switch {
		case twoSided:
			return errors.New("messages take and leave memory of this rank alone")
		case ref.Buf == Tmp:
			return fmt.Errorf("the scratch of rank %d is its own", of)
		case !pl.Request.Topo.Same(r, of):
			return fmt.Errorf("rank %d is on another host", of)
		case ref.Buf != Stage && !pl.Mapped:
			return errors.New("the plan is not declared to need mapped memory")
		}
	}
	in, out := p.plans[of].Request.Sizes()
	size := [...]int{In: in, Out: out, Tmp: pl.Tmp, Stage: pl.Stage}[ref.Buf]
	if ref.Off < 0 || n > size || ref.Off > size-n {
		return fmt.Errorf("%s of rank %d has %d elements", ref.Buf, of, size)
	}
	if write && n > 0 && !p.writable(ref, n) {
		return fmt.Errorf("the input of rank %d may not be written", of)
	}
	return nil
}

// writable reports whether n elements at ref are no input, or one that is the
// output as well.
func (p *prover) writable(ref Ref, n int) bool {
	q := &p.plans[ref.Rank].Request
	at := q.home(ref)
	if at.Buf != In {
		return true // In that is Out lives in Out
	}
	_, out := q.Sizes()
	start := q.home(Ref{Out, ref.Rank, 0})
	return start.Buf == In && at.Off >= start.Off && at.Off+n <= start.Off+out
}

// overlaps refuses a destination that a source or another destination covers in
// part: such a step depends on the direction in which a kernel runs.
func (p *prover) overlaps(r, pc int, s *Step) error {
	for i, d := range s.Dst {
		m, lo, hi := p.span(d, s.N)
		for _, other := range s.Src {
			if om, olo, ohi := p.span(other, s.N); om == m && olo < hi && lo < ohi && olo != lo {
				return p.errorf(r, pc, "a destination covers part of a source")
			}
		}
		for _, other := range s.Dst[:i] {
			if om, olo, ohi := p.span(other, s.N); om == m && olo < hi && lo < ohi {
				return p.errorf(r, pc, "two destinations overlap")
			}
		}
	}
	return nil
}

// checkForm reports a step that has other places than its kind asks for.
func (s *Step) checkForm() error {
	src, dst := 0, 0 // required; -1: one or more
	switch s.Kind {
	case Send:
		src = 1
	case Recv:
		dst = 1
	case RecvReduce:
		src, dst = 1, 1
	case Copy:
		src, dst = 1, -1
	case Fold:
		src, dst = -1, -1
	}
	fits := func(have, want int) bool { return have == want || want < 0 && have > 0 }
	switch {
	case s.Kind < Send || s.Kind > Await:
		return fmt.Errorf("unknown kind of step %d", s.Kind)
	case !fits(len(s.Src), src) || !fits(len(s.Dst), dst):
		return fmt.Errorf("a %s does not have %d sources and %d destinations", s.Kind, len(s.Src), len(s.Dst))
	case s.Final && s.Kind != Fold && s.Kind != RecvReduce:
		return fmt.Errorf("a %s cannot be final", s.Kind)
	case (s.Kind == Notify || s.Kind == Await) && s.Phase == 0:
		return fmt.Errorf("phases grow from 1")
	}
	return nil
}
