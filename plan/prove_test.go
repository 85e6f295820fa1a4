package plan_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/plan"
)

// long asks for every world up to 64.
var long = os.Getenv("CHORUS_TEST_LONG") == "1"

// topologies returns the placements of a world that the tests try.
func topologies(world int) map[string]*plan.Topology {
	at := func(host func(r int) int) *plan.Topology {
		t := &plan.Topology{Host: make([]int, world)}
		number := map[int]int{}
		for r := range world {
			h := host(r)
			if _, ok := number[h]; !ok {
				number[h] = len(number)
			}
			t.Host[r] = number[h]
		}
		return t
	}
	all := map[string]*plan.Topology{"one host": at(func(int) int { return 0 })}
	if world > 1 {
		all["separate"] = nil
	}
	if world > 2 {
		all["halves"] = at(func(r int) int { return 2 * r / world })
		all["one apart"] = at(func(r int) int { return r / (world - 1) })
	}
	if world > 3 {
		all["interleaved"] = at(func(r int) int { return r % 2 })
		all["three uneven"] = at(func(r int) int { return []int{0, 0, 1, 2, 0, 1, 0, 2, 0}[r%9] })
	}
	return all
}

// roots returns all roots of a small world, some of a large one.
func roots(c plan.Collective, world int) []int {
	if !c.Rooted() {
		return []int{0}
	}
	switch {
	case world > 8 && !long:
		return []int{0, 1, world/2 + 1, world - 1}
	case world > 16:
		return []int{0, 1, 2, world / 3, world/2 + 1, world - 2, world - 1}
	}
	all := make([]int, world)
	for r := range all {
		all[r] = r
	}
	return all
}

// shape is a request without its collective and world.
type shape struct {
	count, elem, stage, chunk int
	counts                    []int
	inPlace                   bool
}

// shapes returns the sizes that the tests try. Elements of 64 bytes make parts
// that do not round to cache lines, and small stages and chunks long pipelines.
func shapes(c plan.Collective, world int) []shape {
	if c == plan.Barrier {
		return []shape{{elem: 1, stage: 1}}
	}
	least, large, chunk := 4*world*64, 1021, 200
	blocks := c == plan.AllGather || c == plan.ReduceScatter || c == plan.AllToAll || c == plan.Gather || c == plan.Scatter
	if blocks && world > 8 {
		large, chunk = 131, 64*world // a chunk is shared by all blocks
	}
	all := []shape{
		{count: 0, elem: 64, stage: 1 << 20},
		{count: 1, elem: 4, stage: 1 << 20},
		{count: world - 1, elem: 64, stage: 1 << 20},
		{count: world, elem: 64, stage: least},
		{count: world + 1, elem: 64, stage: least, chunk: 64},
		{count: large, elem: 4, stage: least, chunk: chunk},
	}
	if blocks && c != plan.AllToAll {
		counts, gaps := make([]int, world), make([]int, world)
		for r := range counts {
			counts[r] = (r*7 + 3) % 11
			gaps[r] = (r % 3 / 2) * 5
		}
		all = append(all,
			shape{counts: counts, elem: 64, stage: least, chunk: 256},
			shape{counts: gaps, elem: 4, stage: 1 << 20})
	}
	if c == plan.Broadcast { // parts that a root copies
		all = append(all, shape{count: 2*world + 1, elem: 32 << 10, stage: 1 << 20})
	}
	for i, s := range all {
		if s.inPlace = true; world > 16 && !long && i%2 == 0 {
			all[i] = s // either way in turns
		} else {
			all = append(all, s)
		}
	}
	return all
}

// sweep calls f with every request of the tests for an algorithm. Where ranks
// stand is the same to two-sided plans, which are tried everywhere in small
// worlds only.
func sweep(a plan.Algorithm, worlds []int, f func(name string, q plan.Request)) {
	c := a.Collective
	for _, world := range worlds {
		for place, topo := range topologies(world) {
			if !a.OneSided && world > 4 && topo != nil {
				continue
			}
			if world > 16 && !long && (place == "halves" || place == "one apart") {
				continue
			}
			for _, root := range roots(c, world) {
				for _, s := range shapes(c, world) {
					q := plan.Request{Collective: c, World: world, Root: root, Count: s.count, Counts: s.counts,
						ElemSize: s.elem, StageBytes: s.stage, ChunkBytes: s.chunk, InPlace: s.inPlace, Topo: topo}
					f(fmt.Sprintf("world %d, %s, root %d, %+v", world, place, root, s), q)
				}
			}
		}
	}
}

func worlds() []int {
	var all []int
	for w := 1; w <= 64; w++ {
		if raceEnabled && w > 6 {
			break // the prover has no goroutines; only the registry is shared
		}
		if testutil.Short() && w > 8 && w != 12 && w != 16 && w != 23 {
			continue
		}
		if long || w <= 16 || w == 23 || w == 64 {
			all = append(all, w)
		}
	}
	return all
}

func TestEveryGenerator(t *testing.T) {
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			t.Run(c.String()+"/"+a.Name, func(t *testing.T) {
				t.Parallel()
				proved := 0
				sweep(a, worlds(), func(name string, q plan.Request) {
					if t.Failed() {
						return
					}
					if err := a.Check(q); err != nil {
						if !errors.Is(err, plan.ErrUnsupported) {
							t.Errorf("%s: %v", name, err)
						}
						return
					}
					if err := plan.Prove(a, q); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					proved++
				})
				if proved < 5 && !t.Failed() {
					t.Errorf("only %d requests were supported", proved)
				}
			})
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	for _, name := range []string{"ring", "doubling", "direct", "staged", "staged_split"} {
		b.Run(name, func(b *testing.B) {
			a, _ := plan.Lookup(plan.AllReduce, name)
			q := plan.Request{Collective: plan.AllReduce, World: 8, Count: 1 << 20, ElemSize: 4, StageBytes: 4 << 20,
				Topo: &plan.Topology{Host: make([]int, 8)}}
			b.ReportAllocs()
			for b.Loop() {
				a.Plan(q)
			}
		})
	}
}

func BenchmarkProve(b *testing.B) {
	for _, world := range []int{8, 64} {
		b.Run(fmt.Sprint(world), func(b *testing.B) {
			a, _ := plan.Lookup(plan.AllReduce, "ring")
			q := plan.Request{Collective: plan.AllReduce, World: world, Count: 1021, ElemSize: 64}
			for b.Loop() {
				if err := plan.Prove(a, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
