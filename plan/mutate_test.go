package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// generate returns all ranks' plans, in memory of their own.
func generate(a plan.Algorithm, q plan.Request) ([]*plan.Plan, error) {
	plans := make([]*plan.Plan, q.World)
	for r := range plans {
		q.Rank = r
		p, err := a.Plan(q)
		if err != nil {
			return nil, err
		}
		plans[r] = p
	}
	return plans, nil
}

func clone(plans []*plan.Plan) []*plan.Plan {
	out := make([]*plan.Plan, len(plans))
	for r, p := range plans {
		c := *p
		c.Steps = slices.Clone(p.Steps)
		for i := range c.Steps {
			c.Steps[i].Src = slices.Clone(c.Steps[i].Src)
			c.Steps[i].Dst = slices.Clone(c.Steps[i].Dst)
		}
		out[r] = &c
	}
	return out
}

// randomRequest is a small one: every element costs the interpreter.
func randomRequest(c plan.Collective, rng *rand.Rand) plan.Request {
	world := 2 + rng.IntN(5)
	q := plan.Request{Collective: c, World: world, Count: rng.IntN(2*world + 2), ElemSize: 64, InPlace: rng.IntN(2) == 0,
		StageBytes: 4 * world * 64 << rng.IntN(4), ChunkBytes: 64 * rng.IntN(4)}
	if c.Rooted() {
		q.Root = rng.IntN(world)
	}
	var names []string
	all := topologies(world)
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	q.Topo = all[names[rng.IntN(len(names))]]
	if rng.IntN(3) == 0 && (c == plan.AllGather || c == plan.ReduceScatter || c == plan.Gather || c == plan.Scatter) {
		q.Counts = make([]int, world)
		for r := range q.Counts {
			q.Counts[r] = rng.IntN(4)
		}
	}
	return q
}

// randomPlans returns the plans of a random algorithm for a random request.
func randomPlans(t *testing.T, rng *rand.Rand) (plan.Algorithm, []*plan.Plan) {
	for {
		c := plan.Collectives()[rng.IntN(len(plan.Collectives()))]
		q := randomRequest(c, rng)
		all := plan.Algorithms(c)
		a := all[rng.IntN(len(all))]
		if a.Check(q) != nil {
			continue
		}
		plans, err := generate(a, q)
		if err != nil {
			t.Fatal(err)
		}
		return a, plans
	}
}

// TestInterpreterAgrees runs valid plans in random orders. On one host every
// one-sided reduction must fold in the order of the ranks.
func TestInterpreterAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	elements := 0
	for range 1500 {
		a, plans := randomPlans(t, rng)
		if err := plan.ProvePlans(plans); err != nil {
			t.Fatalf("%v\n%+v", err, plans[0].Request)
		}
		x, err := interpret(plans, rng)
		if err != nil {
			t.Fatalf("%s %s: %v\n%+v", a.Collective, a.Name, err, plans[0].Request)
		}
		for _, k := range x.ranks {
			elements += len(k.result)
		}
		if !a.OneHost || !a.Collective.Reduces() {
			continue
		}
		for r, k := range x.ranks {
			for _, got := range k.result {
				for s := range plans {
					if i := strings.Index(got, fmt.Sprintf("%d[", s)); s > 0 && i < strings.Index(got, fmt.Sprintf("%d[", s-1)) {
						t.Fatalf("%s %s: rank %d has %s, not in rank order", a.Collective, a.Name, r, got)
					}
				}
				if strings.Count(got, "(") > 1 {
					t.Fatalf("%s %s: rank %d has %s, more than one fold", a.Collective, a.Name, r, got)
				}
			}
		}
	}
	if elements < 20000 {
		t.Errorf("only %d elements were compared", elements)
	}
}

// mutate breaks one step of one rank and says how.
func mutate(plans []*plan.Plan, rng *rand.Rand) string {
	r := rng.IntN(len(plans))
	p := plans[r]
	if len(p.Steps) == 0 {
		return ""
	}
	i := rng.IntN(len(p.Steps))
	s := &p.Steps[i]
	before := p.StepText(i)
	refs := &s.Src
	if len(s.Src) == 0 || len(s.Dst) > 0 && rng.IntN(2) == 0 {
		refs = &s.Dst
	}
	how := ""
	switch rng.IntN(12) {
	case 0, 1:
		how = "drop"
		p.Steps = slices.Delete(p.Steps, i, i+1)
	case 2:
		how = "repeat"
		p.Steps = slices.Insert(p.Steps, i, *s)
	case 3:
		if i+1 == len(p.Steps) {
			return ""
		}
		how = "swap with the next"
		p.Steps[i], p.Steps[i+1] = p.Steps[i+1], p.Steps[i]
	case 4:
		how = "other peer"
		s.Peer = int32(rng.IntN(len(plans)+1) - 1)
	case 5:
		how = "other phase"
		s.Phase = uint32(int(s.Phase) + 1 - 2*rng.IntN(2))
	case 6:
		how = "flip final"
		s.Final = !s.Final
	case 7:
		how = "other size"
		s.N += 1 - 2*rng.IntN(2)
	default:
		if len(*refs) == 0 {
			return ""
		}
		ref := &(*refs)[rng.IntN(len(*refs))]
		switch rng.IntN(4) {
		case 0:
			how = "shift"
			ref.Off += 1 - 2*rng.IntN(2)
		case 1:
			how = "other rank"
			ref.Rank = int32(rng.IntN(len(plans)))
		case 2:
			how = "other buffer"
			ref.Buf = plan.Buf(rng.IntN(4))
		case 3:
			if len(*refs) == 1 {
				return ""
			}
			how = "drop a place"
			*refs = (*refs)[1:]
		}
	}
	return fmt.Sprintf("rank %d, step %d (%s): %s", r, i, before, how)
}

// TestMutants breaks plans at random. Many a mutant is still right (two posts
// swapped, a wait too many), so whatever the prover accepts is run in random
// orders, and must be.
func TestMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	tried, rejected := 0, 0
	rounds := 30000
	switch {
	case raceEnabled:
		rounds /= 10
	case long:
		rounds *= 20
	}
	for range rounds {
		a, plans := randomPlans(t, rng)
		broken := clone(plans)
		how := mutate(broken, rng)
		if how == "" || slices.EqualFunc(broken, plans, func(a, b *plan.Plan) bool { return a.String() == b.String() }) {
			continue // nothing that matters has changed
		}
		tried++
		if plan.ProvePlans(broken) != nil {
			rejected++
			continue
		}
		for range 15 {
			if _, err := interpret(broken, rng); err != nil {
				t.Fatalf("%s %s, %+v\n%s\nis accepted, but: %v\n%s", a.Collective, a.Name, plans[0].Request, how, err, broken[0])
			}
		}
	}
	t.Logf("%d of %d mutants rejected", rejected, tried)
	if rejected < tried*3/4 {
		t.Errorf("only %d of %d mutants were rejected", rejected, tried)
	}
}
