package myplan

import (
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// TestProof proves the algorithm for every world up to 16 and the sizes at which
// blocks become empty or uneven, in place and out of place.
func TestProof(t *testing.T) {
	for world := 1; world <= 16; world++ {
		for _, count := range []int{0, 1, world - 1, world, world + 1, 2*world + 1, 1009} {
			for _, inPlace := range []bool{false, true} {
				q := plan.Request{Collective: plan.AllReduce, World: world, Count: count, ElemSize: 4, InPlace: inPlace}
				a, err := plan.Select(q, plan.DefaultMachine(), Name, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := plan.Prove(a, q); err != nil {
					t.Errorf("world %d, count %d, in place %v: %v", world, count, inPlace, err)
				}
			}
		}
	}
}

// TestProofCatches breaks the plan in one place, so that the proof is known to look.
func TestProofCatches(t *testing.T) {
	q := plan.Request{Collective: plan.AllReduce, World: 4, Count: 64, ElemSize: 4}
	plans := make([]*plan.Plan, q.World)
	for q.Rank = range q.World {
		p, err := generate(q)
		if err != nil {
			t.Fatal(err)
		}
		plans[q.Rank] = p
	}
	if err := plan.ProvePlans(plans); err != nil {
		t.Fatal(err)
	}
	steps := plans[2].Steps
	for i := range steps {
		if steps[i].Kind == plan.Recv {
			steps[i].Dst[0].Off++
			break
		}
	}
	if err := plan.ProvePlans(plans); err == nil {
		t.Error("a plan that receives to the wrong place was proved")
	}
}

// Example prints the plan of one rank.
func Example() {
	q := plan.Request{Collective: plan.AllReduce, World: 2, Rank: 0, Count: 4, ElemSize: 4}
	a, _ := plan.Lookup(plan.AllReduce, Name)
	p, err := a.Plan(q)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	// Output:
	// all_reduce two_way_ring world=2 rank=0 count=4 elem=4
	//    0  send 1 in[0:1]
	//    1  send 1 in[1:2]
	//    2  recv_reduce 1 in[2:3] -> out[2:3] final
	//    3  recv_reduce 1 in[3:4] -> out[3:4] final
	//    4  wait
	//    5  send 1 out[2:3]
	//    6  send 1 out[3:4]
	//    7  recv 1 -> out[0:1]
	//    8  recv 1 -> out[1:2]
	//    9  wait
}
