package plan_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// TestBrokenPlans gives the prover worlds that are wrong in one way each. Plans
// are separated by empty lines.
func TestBrokenPlans(t *testing.T) {
	const two, host = " world=2 count=4 elem=4", " world=2 count=4 elem=4 hosts=0,0 stage_bytes=64 stage=4"
	for _, c := range []struct{ name, want, plans string }{
		{"deadlock without buffers", "rank 0, step 1 (wait): deadlock: step 0 (send 1 in[0:4]) finds no partner", `
all_gather x rank=0` + two + `
send 1 in[0:4]
wait
recv 1 -> out[4:8]
wait
copy in[0:4] -> out[0:4]

all_gather x rank=1` + two + `
send 0 in[0:4]
wait
recv 0 -> out[0:4]
wait
copy in[0:4] -> out[4:8]`},
		{"sizes differ", "4 elements meet a receive of 3 on rank 1, step 0", `
broadcast x rank=0` + two + `
send 1 in[0:4]
copy in[0:4] -> out[0:4]
wait

broadcast x rank=1` + two + `
recv 0 -> out[0:3]
wait`},
		{"outside the buffer", "rank 1, step 0 (recv 0 -> out[1:5]): out of rank 1 has 4 elements", `
broadcast x rank=0` + two + `
send 1 in[0:4]
wait

broadcast x rank=1` + two + `
recv 0 -> out[1:5]
wait`},
		{"undefined result", "rank 1, end: out[2] is undefined", `
broadcast x rank=0` + two + `
send 1 in[0:2]
copy in[0:4] -> out[0:4]
wait

broadcast x rank=1` + two + `
recv 0 -> out[0:2]
wait`},
		{"no wait", "rank 0, step 0 (send 1 in[0:4]): no Wait completes it", `
broadcast x rank=0` + two + `
send 1 in[0:4]
copy in[0:4] -> out[0:4]

broadcast x rank=1` + two + `
recv 0 -> out[0:4]
wait`},
		{"posted memory touched", "rank 1, step 1 (copy out[0:4] -> tmp[0:4]): rank 1 has posted this memory in step 0", `
broadcast x rank=0` + two + `
send 1 in[0:4]
copy in[0:4] -> out[0:4]
wait

broadcast x rank=1 tmp=4` + two + `
recv 0 -> out[0:4]
copy out[0:4] -> tmp[0:4]
wait`},
		{"unanswered", "rank 0, step 0 (send 1 in[0:4]): nothing", ``},
		{"input written", "the input of rank 0 may not be written", `
all_reduce x rank=0` + two + `
send 1 in[0:4]
wait
recv 1 -> in[0:4]
wait

all_reduce x rank=1` + two + `
recv 0 -> out[0:4]
wait`},
		{"no await", "data race: nothing orders this access and one of rank 1", `
all_reduce x rank=0` + host + `
copy in[0:4] -> stage[0:4]
notify 1
fold in[0:4] + stage@1[0:4] -> out[0:4] final

all_reduce x rank=1` + host + `
copy in[0:4] -> stage[0:4]
notify 1
await 0 1
fold stage@0[0:4] + in[0:4] -> out[0:4] final`},
		{"no closing await", "data race: rank 0 may have ended its plan before", `
broadcast x mapped rank=0` + host + `
copy in[0:4] -> out[0:4]
notify 1

broadcast x mapped rank=1` + host + `
await 0 1
copy in@0[0:4] -> out[0:4]`},
		{"phases", "phase 1 after 1: phases must grow", `
barrier x rank=0` + host + `
notify 1
notify 1

barrier x rank=1` + host},
		{"leaves the barrier", "rank 1, end: it leaves the barrier without knowing that rank 0 has entered", `
barrier x rank=0` + host + `
await 1 1

barrier x rank=1` + host + `
notify 1`},
		{"other bits", "on rank 0", `
all_reduce x rank=0 world=3 count=1 elem=4 hosts=0,0,0 stage_bytes=64 stage=4
copy in[0:1] -> stage[0:1]
notify 1
await all 1
fold in[0:1] + stage@1[0:1] + stage@2[0:1] -> out[0:1] final

all_reduce x rank=1 world=3 count=1 elem=4 hosts=0,0,0 stage_bytes=64 stage=4
copy in[0:1] -> stage[0:1]
notify 1
await all 1
fold stage@0[0:1] + in[0:1] + stage@2[0:1] -> out[0:1] final

all_reduce x rank=2 world=3 count=1 elem=4 hosts=0,0,0 stage_bytes=64 stage=4
copy in[0:1] -> stage[0:1]
notify 1
await all 1
fold stage@0[0:1] + in[0:1] + stage@1[0:1] -> out[0:1] final`},
		{"counted twice", "it counts rank 0 twice", `
reduce x rank=0` + two + `
fold in[0:4] + in[0:4] -> out[0:4] final

reduce x rank=1` + two},
		{"not final", "out[0] was not marked final", `
reduce x rank=0` + two + `
recv_reduce 1 in[0:4] -> out[0:4]
wait

reduce x rank=1` + two + `
send 0 in[0:4]
wait`},
		{"a rank behind", "out[0] has a contribution of rank 1", `
scan x rank=0` + two + `
recv_reduce 1 in[0:4] -> out[0:4]
wait

scan x rank=1` + two + `
send 0 in[0:4]
wait`},
		{"a final prefix", "out[0] was marked final", `
scan x rank=0` + two + `
copy in[0:4] -> out[0:4]
send 1 in[0:4]
wait

scan x rank=1` + two + `
recv_reduce 0 in[0:4] -> out[0:4] final
wait`},
		{"another host", "rank 1 is on another host", `
reduce x rank=0 mapped stage_bytes=64` + two + `
fold in[0:4] + in@1[0:4] -> out[0:4] final

reduce x rank=1 mapped stage_bytes=64` + two},
		{"not declared mapped", "not declared to need mapped memory", `
reduce x rank=0` + host + `
fold in[0:4] + in@1[0:4] -> out[0:4] final

reduce x rank=1` + host},
		{"covers in part", "a destination covers part of a source", `
broadcast x rank=0` + two + ` in_place
copy out[0:3] -> out[1:4]

broadcast x rank=1` + two + ` in_place`},
		{"too much stage", "there are 64 bytes of stage", `
barrier x rank=0 world=2 elem=4 stage_bytes=64 stage=17

barrier x rank=1 world=2 elem=4 stage_bytes=64 stage=17`},
		{"another element size", "another operation than rank 0", `
broadcast x rank=0 world=2 count=4 elem=4

broadcast x rank=1 world=2 count=4 elem=8`},
		{"other hosts", "another operation than rank 0", `
barrier x rank=0 world=2 hosts=0,0

barrier x rank=1 world=2 hosts=0,1`},
		{"another root", "another operation than rank 0", `
broadcast x rank=0 root=0` + two + `

broadcast x rank=1 root=1` + two},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.plans == "" { // a send to a rank that ends at once
				c.plans = "broadcast x rank=0" + two + "\nsend 1 in[0:4]\nwait\n\nbroadcast x rank=1" + two
				c.want = "finds no partner"
			}
			var plans []*plan.Plan
			for text := range strings.SplitSeq(strings.TrimSpace(c.plans), "\n\n") {
				p, err := plan.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				plans = append(plans, p)
			}
			if err := plan.ProvePlans(plans); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestUnevenAllToAll proves the exchange of random matrices of block sizes.
func TestUnevenAllToAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, a := range plan.Algorithms(plan.AllToAll) {
		proved := 0
		for range 200 {
			world := 1 + rng.IntN(9)
			inPlace := rng.IntN(2) == 0
			matrix := make([][]int, world)
			for r := range matrix {
				matrix[r] = make([]int, world)
			}
			for r := range matrix {
				for s := range matrix {
					matrix[r][s] = rng.IntN(5) * rng.IntN(4)
					if inPlace {
						matrix[s][r] = matrix[r][s]
					}
				}
			}
			qs := make([]plan.Request, world)
			for r := range qs {
				recv := make([]int, world)
				for s := range recv {
					recv[s] = matrix[s][r]
				}
				qs[r] = plan.Request{Collective: plan.AllToAll, World: world, Rank: r, ElemSize: 8, ChunkBytes: 16,
					SendCounts: matrix[r], RecvCounts: recv, InPlace: inPlace}
			}
			if a.Check(qs[0]) != nil {
				continue
			}
			if err := plan.ProveRequests(a, qs); err != nil {
				t.Fatalf("%s of %v in place %v: %v", a.Name, matrix, inPlace, err)
			}
			proved++
		}
		if a.Name == "pairwise" && proved < 150 {
			t.Errorf("only %d proved", proved)
		}
	}
	if plan.Prove(plan.Algorithms(plan.AllToAll)[0], plan.Request{World: 2, SendCounts: []int{1, 2}}) == nil {
		t.Error("Prove cannot know the counts of the other ranks")
	}
}
