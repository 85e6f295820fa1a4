package plan

import (
	"fmt"
	"math/bits"
)

func lowest(set uint64) int { return bits.TrailingZeros64(set) }

// checkResult compares every Out with what the collective defines.
func (p *prover) checkResult() error {
	for r, pl := range p.plans {
		q := &pl.Request
		_, out := q.Sizes()
		if out == 0 {
			continue
		}
		m, lo, hi := p.span(Ref{Out, int32(r), 0}, out)
		p.runs = m.read(p.runs[:0], lo, hi)
		for _, run := range p.runs {
			if err := p.checkRun(r, q, run); err != nil {
				return err
			}
		}
		if q.Collective == AllReduce && r > 0 {
			if err := p.sameAsFirst(r, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRun checks a stretch of Out of rank r that has one value.
func (p *prover) checkRun(r int, q *Request, got run) error {
	wrong := func(at int, format string, args ...any) error {
		return p.errorf(r, len(p.plans[r].Steps), "out[%d] %s", at, fmt.Sprintf(format, args...))
	}
	if got.v.node == 0 {
		return wrong(got.lo, "is undefined")
	}
	// input checks that out[lo:hi] holds the input of rank of, from off on.
	input := func(lo, hi, of, off int) error {
		lo, hi = max(lo, got.lo), min(hi, got.hi)
		if lo < hi && got.v != (value{leaf(of), off}) {
			return wrong(lo, "holds %s instead of in[%d] of rank %d", p.values.text(got.v, lo), lo+off, of)
		}
		return nil
	}
	if q.World == 1 {
		return input(got.lo, got.hi, 0, 0)
	}
	switch q.Collective {
	case AllReduce, Reduce, ReduceScatter, Scan:
		shift, last := 0, p.n-1
		if q.Collective == Scan { // of which there are no averages: nothing is final
			last = r
		}
		if q.Collective == ReduceScatter {
			shift = q.layout().off(r)
		}
		nd := &p.values.nodes[got.v.node]
		for s := range p.n {
			switch has := nd.ranks[s/64]>>(s%64)&1 != 0; {
			case s <= last && !has:
				return wrong(got.lo, "lacks the contribution of rank %d", s)
			case s > last && has:
				return wrong(got.lo, "has a contribution of rank %d", s)
			}
		}
		if got.v.shift != shift {
			return wrong(got.lo, "holds the reduction of in[%d] instead of in[%d]", got.lo+got.v.shift, got.lo+shift)
		}
		switch {
		case !nd.final && q.Collective != Scan:
			return wrong(got.lo, "was not marked final")
		case nd.final && q.Collective == Scan:
			return wrong(got.lo, "was marked final")
		}
	case Broadcast:
		return input(got.lo, got.hi, q.Root, 0)
	case Scatter:
		return input(got.lo, got.hi, q.Root, q.layout().off(r))
	case AllGather, Gather:
		l := q.layout()
		return p.eachBlock(l, func(s, lo, hi int) error { return input(lo, hi, s, -lo) })
	case AllToAll:
		l := newLayout(q.RecvCounts, q.Count)
		return p.eachBlock(l, func(s, lo, hi int) error {
			of := &p.plans[s].Request
			return input(lo, hi, s, newLayout(of.SendCounts, of.Count).off(r)-lo)
		})
	}
	return nil
}

func (p *prover) eachBlock(l layout, f func(s, lo, hi int) error) error {
	for s := range p.n {
		if err := f(s, l.off(s), l.off(s+1)); err != nil {
			return err
		}
	}
	return nil
}

// sameAsFirst checks that rank r combined its elements as rank 0 did.
func (p *prover) sameAsFirst(r, n int) error {
	m, lo, _ := p.span(Ref{Out, int32(r), 0}, n)
	m0, lo0, _ := p.span(Ref{Out, 0, 0}, n)
	a, b := m.cursor(lo), m0.cursor(lo0)
	for pos := 0; pos < n; {
		va, left := a.at(pos)
		vb, left0 := b.at(pos)
		if va != vb {
			return p.errorf(r, len(p.plans[r].Steps), "out[%d] is %s, on rank 0 %s: other bits", pos, p.values.text(va, pos),
				p.values.text(vb, pos))
		}
		pos += min(left, left0)
	}
	return nil
}

// text writes a formula for an element, such as ((0+1)+(2+3))[5].
func (v *values) text(val value, at int) string {
	if val.node == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s[%d]", v.formula(val.node), at+val.shift)
}

func (v *values) formula(id int32) string {
	if int(id) <= v.n {
		return fmt.Sprint(id - 1)
	}
	s := "("
	for i, a := range v.nodes[id].args {
		if i > 0 {
			s += "+"
		}
		s += v.formula(a)
	}
	return s + ")"
}
