package native

import (
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// No step touches what hasn't come, and nothing writes what was said to be final: neither a later step, nor a message
// that is waited for later.
func TestPieces(t *testing.T) {
	early := map[string]bool{} // something is final before the last step
	for _, kind := range []plan.Collective{plan.Broadcast, plan.Reduce, plan.AllReduce} {
		for _, a := range plan.Algorithms(kind) {
			for _, hosts := range [][]int{{0, 0, 0}, {0, 1, 2}, {0, 0, 1, 1}} {
				world := len(hosts)
				for rank := range world {
					q := plan.Request{Collective: kind, World: world, Rank: rank, Root: 1, Count: 300_000, ElemSize: 4,
						Topo: &plan.Topology{Host: hosts}, StageBytes: 1 << 20, InPlace: rank == 2}
					p, err := a.Plan(q)
					if a.Mapped || err != nil {
						continue
					}
					steps := compile(p, 0, 0).steps
					out := baseOf(plan.Out, rank, world)
					own := []int{baseOf(plan.In, rank, world), out}
					for i, s := range steps {
						ends := i // when the step's last byte is written
						if s.kind == plan.Recv || s.kind == plan.RecvReduce {
							for ends < len(steps)-1 && steps[ends].kind != plan.Wait {
								ends++
							}
						}
						for _, r := range slices.Concat(s.src, s.dst) {
							if slices.Contains(own, r.base) && r.off+s.bytes > s.needs {
								t.Fatalf("%v by %s: step %d needs %d bytes and touches %d", kind, a.Name, i, s.needs, r.off+s.bytes)
							}
						}
						for _, r := range s.dst {
							for k := range ends {
								if r.base == out && r.off < steps[k].settled {
									t.Fatalf("%v by %s: %d bytes are final after step %d of rank %d, and step %d writes at %d", kind,
										a.Name, steps[k].settled, k, rank, i, r.off)
								}
							}
						}
						early[a.Name] = early[a.Name] || i < len(steps)/2 && 0 < s.settled && s.settled < 4*q.Count
					}
				}
			}
		}
	}
	for _, name := range []string{"staged", "staged_split", "two_level"} {
		if !early[name] {
			t.Errorf("%s leaves nothing final before its end", name)
		}
	}
}
