package native

import (
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// A rank maps those buffers of the others that its program refers to, and no others: whose owner has nothing to wait
// for may be through with the operation, and have freed them.
func TestOnlyWhatIsReferredToIsMapped(t *testing.T) {
	const world, root = 3, 1
	for _, kind := range []plan.Collective{plan.Broadcast, plan.Gather, plan.Scatter, plan.Reduce, plan.AllReduce,
		plan.AllGather, plan.ReduceScatter} {
		for _, a := range plan.Algorithms(kind) {
			if !a.Mapped {
				continue
			}
			for rank := range world {
				q := plan.Request{Collective: kind, World: world, Rank: rank, Root: root, Count: 3000, ElemSize: 4,
					Topo: &plan.Topology{Host: make([]int, world)}, StageBytes: 1 << 20}
				p, err := compileMapped(a, q)
				if err != nil {
					t.Fatalf("%v by %s: %v", kind, a.Name, err)
				}
				c := &compiled{req: q, plain: p, mapped: p, shape: shape{tuned: new(tuning)}}
				c.finish()
				refers := func(b plan.Buf, r int) bool {
					return slices.ContainsFunc(p.steps, func(s step) bool {
						return slices.ContainsFunc(slices.Concat(s.src, s.dst), func(x ref) bool {
							return x.base == baseOf(b, r, world)
						})
					})
				}
				for r, size := range c.sizes {
					if r == rank {
						continue
					}
					if in, out := refers(plan.In, r), refers(plan.Out, r); in != (size.in > 0) || out != (size.out > 0) {
						t.Errorf("%v by %s: rank %d refers to the input of rank %d: %v, output: %v; it maps %d and %d bytes",
							kind, a.Name, rank, r, in, out, size.in, size.out)
					}
				}
				if kind == plan.Gather && rank != root && c.sizes[2-rank].in+c.sizes[2-rank].out > 0 {
					t.Errorf("a gather of rank %d maps what is rank %d's, which doesn't wait for it", rank, 2-rank)
				}
			}
		}
	}
}
