package native

import (
	"runtime"
	"testing"

	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/plan"
)

// TestProgramsAreBounded compiles programs for many more shapes than a group keeps: what it keeps stays below its
// bound, which is about the memory that it takes, and what was used lately stays.
func TestProgramsAreBounded(t *testing.T) {
	g := &group{machine: plan.DefaultMachine(), Group: members.Group{Rank: 1}}
	tuned := new(tuning)
	lookup := func(count int) *compiled {
		q := plan.Request{Collective: plan.AllToAll, World: 16, Rank: 1, Count: count, ElemSize: 4,
			Topo: &plan.Topology{Host: make([]int, 16)}, StageBytes: 1 << 20}
		c, err := g.lookup(&q, tuned)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, first := heap(), lookup(1)
	added, dropped := 0, 0
	for count := 2; dropped < 3; count++ {
		kept := len(g.programs.all)
		lookup(count)
		added++
		if len(g.programs.all) <= kept {
			dropped++
		}
		if g.programs.bytes > maxProgramBytes {
			t.Fatalf("%d programs take %d bytes", len(g.programs.all), g.programs.bytes)
		}
		if lookup(1) != first {
			t.Fatalf("after %d more, the shape that is used all the time was compiled anew", added)
		}
	}
	if n := len(g.programs.all); n >= added || n < 100 {
		t.Fatalf("of %d programs it keeps %d", added, n)
	}
	if taken, said := int(heap()-before), g.programs.bytes; taken > 2*said || said > 2*taken {
		t.Errorf("it takes %d bytes, and says %d", taken, said)
	}
	runtime.KeepAlive(g)
}
