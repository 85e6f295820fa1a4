package plan_test

import (
	"math"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// TestCosts checks that every estimate is a time, grows with the bytes, and is
// the same whichever rank asks; and that something serves every request.
func TestCosts(t *testing.T) {
	roomy, crowded := plan.DefaultMachine(), plan.DefaultMachine()
	crowded.Cores = 2
	for _, c := range plan.Collectives() {
		for _, world := range []int{1, 2, 3, 8, 13} {
			for place, topo := range topologies(world) {
				last := map[string]float64{}
				for _, count := range []int{0, 1, 100, 10_000, 1_000_000} {
					for _, m := range []plan.Machine{roomy, crowded} {
						q := plan.Request{Collective: c, World: world, Count: count, ElemSize: 4, StageBytes: 1 << 20, Topo: topo}
						if _, err := plan.Select(q, m, "", nil); err != nil {
							t.Errorf("%s, world %d, %s: %v", c, world, place, err)
						}
						for _, a := range plan.Algorithms(c) {
							if a.Check(q) != nil {
								continue
							}
							q.Rank = 0
							cost := plan.Cost(a, q, m)
							q.Rank = world - 1
							if other := plan.Cost(a, q, m); other != cost {
								t.Errorf("%s %s, world %d: %g on rank 0 and %g on the last", c, a.Name, world, cost, other)
							}
							key := a.Name
							if m == crowded {
								key += " crowded"
							}
							if !(cost >= 0) || math.IsInf(cost, 0) || cost < last[key] {
								t.Errorf("%s %s, world %d, %s, count %d: %g after %g", c, key, world, place, count, cost, last[key])
							}
							last[key] = cost
						}
					}
				}
			}
		}
	}
}

// TestDirectCopies compares the price of plans that copy in mapped memory with the bytes that the busiest rank copies.
// It also checks that more bytes never cost less, even at the size from which the root of a broadcast copies a part.
func TestDirectCopies(t *testing.T) {
	const part = 32 << 10 // the least part of a root
	m := plan.DefaultMachine()
	for _, c := range []plan.Collective{plan.Broadcast, plan.AllGather, plan.AllToAll, plan.Gather, plan.Scatter} {
		a, ok := plan.Lookup(c, "direct")
		if !ok {
			t.Fatalf("there is no direct %s", c)
		}
		for _, world := range []int{2, 3, 8} {
			q := plan.Request{Collective: c, World: world, Root: 1, ElemSize: 4, StageBytes: 1 << 20,
				Topo: &plan.Topology{Host: make([]int, world)}, InPlace: c == plan.Broadcast}
			synchronized, last := plan.Cost(a, q, m), 0.0
			for bytes := 0; bytes < 4*world*part; bytes += 452 {
				q.Count = bytes / q.ElemSize
				priced := plan.Cost(a, q, m)
				if priced < last {
					t.Fatalf("%s, world %d, %d bytes: %g after %g", c, world, bytes, priced, last)
				}
				last = priced
				priced = (priced - synchronized) * m.Copy
				plans, err := generate(a, q)
				if err != nil {
					t.Fatal(err)
				}
				busiest := 0.0
				for _, p := range plans {
					busiest = max(busiest, copied(p))
				}
				lines := float64(64 * world) // by which parts may differ
				begins := c == plan.Broadcast && bytes >= world*part-64*world && bytes < 2*world*part
				if priced < busiest-lines || priced > busiest+1 && !begins {
					t.Fatalf("%s, world %d, %d bytes: priced as %.0f copied bytes, where the busiest rank copies %.0f", c, world,
						bytes, priced, busiest)
				}
			}
		}
	}
}

// copied returns the bytes that a plan copies; a byte read or written is half of one.
func copied(p *plan.Plan) float64 {
	total := 0
	for _, s := range p.Steps {
		if s.Kind == plan.Copy {
			total += s.N * p.Request.ElemSize * (1 + len(s.Dst))
		}
	}
	return float64(total) / 2
}
