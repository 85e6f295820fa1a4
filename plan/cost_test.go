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
	for c := plan.Broadcast; c <= plan.Barrier; c++ {
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
