package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"

	"github.com/chorus-comms/chorus/plan"
)

// interp runs plans on formulas written out as strings, one element at a time,
// in random order. It shares nothing with the prover: what the prover accepts
// must compute the right result here, whichever order comes up. Before a rank
// starts and after it ends its buffers hold rubbish, as a caller may put there.
type interp struct {
	rng        *rand.Rand
	rendezvous bool // a Send completes only with its Recv
	ranks      []*interpRank
}

type interpRank struct {
	p             *plan.Plan
	in, out       []string
	tmp, stage    []string
	pc            int
	started, done bool
	phase         uint32
	posted        []*interpPost
	result        []string
}

type interpPost struct {
	s        *plan.Step
	from, to int
	n        int // of this direction between these ranks
	data     []string
	taken    bool // a send's data has been read
	finished bool
}

const rubbish = "?"

func newInterp(plans []*plan.Plan, rng *rand.Rand) *interp {
	x := &interp{rng: rng, rendezvous: rng.IntN(2) == 0}
	for r, p := range plans {
		q := p.Request
		q.Rank = r
		in, out := q.Sizes()
		k := &interpRank{p: p, in: make([]string, in), out: make([]string, out),
			tmp: make([]string, p.Tmp), stage: make([]string, q.StageBytes/max(1, q.ElemSize))}
		if q.InPlace && in > 0 && out > 0 {
			at := r * q.Count
			if q.Counts != nil {
				at = 0
				for _, n := range q.Counts[:r] {
					at += n
				}
			}
			switch q.Collective {
			case plan.AllGather, plan.Gather:
				k.in = k.out[at : at+in]
			case plan.ReduceScatter, plan.Scatter:
				k.out = k.in[at : at+out]
			default:
				k.in = k.out
			}
		}
		for _, m := range [][]string{k.in, k.out, k.tmp, k.stage} {
			fill(m)
		}
		x.ranks = append(x.ranks, k)
	}
	return x
}

func fill(m []string) {
	for i := range m {
		m[i] = rubbish
	}
}

// run returns an error if the plans do not end.
func (x *interp) run() error {
	idle := 0
	for left := len(x.ranks); left > 0; {
		r := x.rng.IntN(len(x.ranks))
		k := x.ranks[r]
		moved := x.deliver(r)
		switch {
		case !k.started:
			k.started, moved = true, true
			for i := range k.in {
				k.in[i] = fmt.Sprintf("%d[%d]", r, i)
			}
		case k.done:
		case k.pc == len(k.p.Steps):
			k.done, moved = true, true
			k.result = slices.Clone(k.out)
			fill(k.in)
			fill(k.out)
			left--
		default:
			if x.step(r, k) {
				k.pc++
				moved = true
			}
		}
		if idle++; moved {
			idle = 0
		}
		if idle > 100*len(x.ranks) {
			return fmt.Errorf("no end in sight")
		}
	}
	return nil
}

// deliver moves one random transfer of a rank on.
func (x *interp) deliver(r int) bool {
	k := x.ranks[r]
	if len(k.posted) == 0 {
		return false
	}
	start := x.rng.IntN(len(k.posted))
	for i := range k.posted {
		if po := k.posted[(start+i)%len(k.posted)]; !po.finished && x.progress(po) {
			return true
		}
	}
	return false
}

func (x *interp) progress(po *interpPost) bool {
	if po.s.Kind == plan.Send {
		if !po.taken {
			po.data, po.taken = slices.Clone(x.at(po.s.Src[0], po.s.N)), true
			po.finished = !x.rendezvous
			return true
		}
		return false
	}
	for _, send := range sends[po.from] {
		if send.to == po.to && send.n == po.n && send.taken {
			dst := x.at(po.s.Dst[0], po.s.N)
			if len(send.data) != len(dst) {
				return false
			}
			if po.s.Kind == plan.RecvReduce {
				src := x.at(po.s.Src[0], po.s.N)
				for i := range dst {
					dst[i] = combine(po.s.Final, src[i], send.data[i])
				}
			} else {
				copy(dst, send.data)
			}
			po.finished, send.finished = true, true
			return true
		}
	}
	return false
}

// sends of the running interpreter by rank; tests run one interpreter at a time.
var sends map[int][]*interpPost

func (x *interp) at(r plan.Ref, n int) []string {
	k := x.ranks[r.Rank]
	return [][]string{k.in, k.out, k.tmp, k.stage}[r.Buf][r.Off : r.Off+n]
}

func (x *interp) step(r int, k *interpRank) bool {
	s := &k.p.Steps[k.pc]
	switch s.Kind {
	case plan.Send:
		po := &interpPost{s: s, from: r, to: int(s.Peer)}
		for _, o := range sends[r] {
			if o.to == po.to {
				po.n++
			}
		}
		sends[r] = append(sends[r], po)
		k.posted = append(k.posted, po)
	case plan.Recv, plan.RecvReduce:
		po := &interpPost{s: s, from: int(s.Peer), to: r}
		for _, st := range k.p.Steps[:k.pc] {
			if (st.Kind == plan.Recv || st.Kind == plan.RecvReduce) && st.Peer == s.Peer {
				po.n++
			}
		}
		k.posted = append(k.posted, po)
	case plan.Wait:
		for _, po := range k.posted {
			if !po.finished {
				return false
			}
		}
		k.posted = nil
	case plan.Copy:
		data := slices.Clone(x.at(s.Src[0], s.N))
		for _, d := range s.Dst {
			copy(x.at(d, s.N), data)
		}
	case plan.Fold:
		sum := make([]string, s.N)
		for i := range sum {
			args := make([]string, len(s.Src))
			for a, ref := range s.Src {
				args[a] = x.at(ref, s.N)[i]
			}
			sum[i] = combine(s.Final, args...)
		}
		for _, d := range s.Dst {
			copy(x.at(d, s.N), sum)
		}
	case plan.Notify:
		k.phase = s.Phase
	case plan.Await:
		for o, other := range x.ranks {
			if o != r && (int(s.Peer) == o || s.Peer == plan.All && k.p.Request.Topo.Same(r, o)) && other.phase < s.Phase {
				return false
			}
		}
	}
	return true
}

// combine writes a fold down: two operands in a fixed order, for they commute.
// A final value ends in an exclamation mark, and may not be an operand.
func combine(final bool, args ...string) string {
	for _, a := range args {
		if a == rubbish || strings.HasSuffix(a, "!") {
			return rubbish
		}
	}
	if len(args) == 2 {
		args = slices.Sorted(slices.Values(args))
	}
	s := "(" + strings.Join(args, "+") + ")"
	if final {
		s += "!"
	}
	return s
}

// check compares the results with the definition of the collective.
func (x *interp) check() error {
	for r, k := range x.ranks {
		q := k.p.Request
		for i, got := range k.result {
			want := ""
			block, within := r, i
			if q.Count > 0 && q.Counts == nil {
				block, within = i/q.Count, i%q.Count
			} else if q.Counts != nil {
				for block = 0; within >= q.Counts[block]; block++ {
					within -= q.Counts[block]
				}
			}
			start := 0 // of block r of a large buffer
			for b := range r {
				if q.Counts != nil {
					start += q.Counts[b]
				} else {
					start += q.Count
				}
			}
			switch q.Collective {
			case plan.Broadcast:
				want = fmt.Sprintf("%d[%d]", q.Root, i)
			case plan.Scatter:
				want = fmt.Sprintf("%d[%d]", q.Root, start+i)
			case plan.AllGather, plan.Gather:
				want = fmt.Sprintf("%d[%d]", block, within)
			case plan.AllToAll:
				want = fmt.Sprintf("%d[%d]", block, start+within)
			case plan.AllReduce, plan.Reduce, plan.ReduceScatter, plan.Scan:
				at, of, ends := i, q.World, q.World > 1
				if q.Collective == plan.ReduceScatter {
					at += start
				}
				if q.Collective == plan.Scan {
					of, ends = r+1, false // there are no averages
				}
				if err := allOf(got, of, at, ends); err != nil {
					return fmt.Errorf("rank %d, element %d is %q: %w", r, i, got, err)
				}
				if q.Collective == plan.AllReduce && got != x.ranks[0].result[i] {
					return fmt.Errorf("rank %d, element %d is %q, on rank 0 %q", r, i, got, x.ranks[0].result[i])
				}
				continue
			}
			if got != want {
				return fmt.Errorf("rank %d, element %d is %q, not %q", r, i, got, want)
			}
		}
	}
	return nil
}

// allOf reports whether a formula has element at of every rank once, and is final if it's to be.
func allOf(formula string, world, at int, ends bool) error {
	body, final := strings.CutSuffix(formula, "!")
	if final != ends {
		return fmt.Errorf("final is %v", final)
	}
	leaves := strings.FieldsFunc(body, func(c rune) bool { return strings.ContainsRune("()+", c) })
	var want []string
	for r := range world {
		want = append(want, fmt.Sprintf("%d[%d]", r, at))
	}
	sort.Strings(leaves)
	sort.Strings(want)
	if !slices.Equal(leaves, want) {
		return fmt.Errorf("not every rank once")
	}
	return nil
}

// interpret runs plans in a random order and checks their result.
func interpret(plans []*plan.Plan, rng *rand.Rand) (*interp, error) {
	sends = map[int][]*interpPost{}
	x := newInterp(plans, rng)
	if err := x.run(); err != nil {
		return x, err
	}
	return x, x.check()
}
