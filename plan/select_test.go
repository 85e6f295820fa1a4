package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

func TestSelectDefaults(t *testing.T) {
	oneHost := &plan.Topology{Host: make([]int, 4)}
	mixed := &plan.Topology{Host: []int{0, 0, 1, 1}}
	ordinary := func(a plan.Algorithm) bool { return !a.Mapped }
	for _, c := range []struct {
		name  string
		topo  *plan.Topology
		of    plan.Collective
		bytes int
		allow func(plan.Algorithm) bool
		want  string // alternatives separated by spaces
	}{
		{"small on one host", oneHost, plan.AllReduce, 8, nil, "staged"},
		{"small on one host, ordinary", oneHost, plan.AllReduce, 1024, ordinary, "staged"},
		{"large and mapped", oneHost, plan.AllReduce, 16 << 20, nil, "direct"},
		{"large and ordinary", oneHost, plan.AllReduce, 16 << 20, ordinary, "staged_split staged"},
		{"large broadcast, mapped", oneHost, plan.Broadcast, 16 << 20, nil, "direct"},
		{"large broadcast, ordinary", oneHost, plan.Broadcast, 16 << 20, ordinary, "staged"},
		{"barrier on one host", oneHost, plan.Barrier, 0, nil, "onesided"},
		{"small over the net", nil, plan.AllReduce, 8, nil, "doubling"},
		{"large over the net", nil, plan.AllReduce, 16 << 20, nil, "ring rabenseifner"},
		{"huge broadcast over the net", nil, plan.Broadcast, 64 << 20, nil, "chain"},
		{"small broadcast over the net", nil, plan.Broadcast, 8, nil, "binomial knomial4"},
		{"large all-to-all over the net", nil, plan.AllToAll, 1 << 20, nil, "pairwise"},
		{"small all-to-all over the net", nil, plan.AllToAll, 8, nil, "bruck"},
		{"barrier over the net", nil, plan.Barrier, 0, nil, "dissemination"},
		{"two hosts, small", mixed, plan.AllReduce, 8, nil, "two_level doubling"},
		{"two hosts, large", mixed, plan.AllReduce, 16 << 20, nil, "two_level"},
		{"blocks to reduce, mapped", oneHost, plan.ReduceScatter, 32 << 10, nil, "direct"},
		{"reduce-scatter on two hosts", mixed, plan.ReduceScatter, 64 << 10, nil, "two_level"},
		{"gather on two hosts", mixed, plan.Gather, 64, nil, "two_level"},
		{"scatter on two hosts", mixed, plan.Scatter, 64, nil, "two_level"},
		{"small all-to-all on two hosts", mixed, plan.AllToAll, 8, nil, "two_level"},
		{"large all-to-all on two hosts", mixed, plan.AllToAll, 1 << 20, nil, "two_level"},
		{"barrier on two hosts", mixed, plan.Barrier, 0, nil, "two_level"},
	} {
		q := plan.Request{Collective: c.of, World: 4, Count: c.bytes / 4, ElemSize: 4, StageBytes: 4 << 20, Topo: c.topo}
		m := plan.DefaultMachine()
		m.Cores = 4
		for q.Rank = range q.World {
			a, err := plan.Select(q, m, "", c.allow)
			if err != nil || !strings.Contains(" "+c.want+" ", " "+a.Name+" ") {
				t.Errorf("%s, rank %d: chose %q (%v), want %s", c.name, q.Rank, a.Name, err, c.want)
			}
		}
	}
}

// TestSelectIsTheSameOnAllRanks gives each rank counts of its own.
func TestSelectIsTheSameOnAllRanks(t *testing.T) {
	m := plan.DefaultMachine()
	for _, topo := range topologies(5) {
		first := ""
		for rank := range 5 {
			counts := []int{rank * 1000, 5, 1 << (4 * rank), 0, 7}
			q := plan.Request{Collective: plan.AllToAll, World: 5, Rank: rank, ElemSize: 4, StageBytes: 1 << 20, Topo: topo,
				SendCounts: counts, RecvCounts: counts}
			a, err := plan.Select(q, m, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = a.Name
			}
			if a.Name != "pairwise" { // no other one serves blocks whose sizes their ranks alone know
				t.Errorf("rank %d chose %s", rank, a.Name)
			}
			if a.Name != first {
				t.Errorf("rank %d chose %s, rank 0 %s", rank, a.Name, first)
			}
		}
	}
}

func TestHints(t *testing.T) {
	q := plan.Request{Collective: plan.AllReduce, World: 4, Count: 100, ElemSize: 4, StageBytes: 1 << 16}
	m := plan.DefaultMachine()
	for hint, want := range map[string]string{
		"ring":                                 "ring",
		" rabenseifner ":                       "rabenseifner",
		"allreduce=ring":                       "ring",
		"broadcast=chain, all_reduce=ring":     "ring",
		"broadcast=chain":                      "doubling",
		"barrier=dissemination,AllReduce=ring": "ring",
		"ring?":                                "ring",
		"all_reduce=ring?,barrier=onesided":    "ring",
		"direct?":                              "doubling", // it would need all ranks on one host
		"all_reduce=two_level?":                "doubling",
	} {
		if a, err := plan.Select(q, m, hint, nil); err != nil || a.Name != want {
			t.Errorf("hint %q: %q, %v; want %s", hint, a.Name, err, want)
		}
	}
	for hint, want := range map[string]string{
		"star":              `is called "star"; there are direct, doubling, rabenseifner, ring, staged`,
		"direct":            "it needs all ranks on one host",
		"star?":             `is called "star"`,
		"allreduce=":        "is not collective=algorithm",
		"allreduce=ring,x":  "is not collective=algorithm",
		"?":                 "without a name",
		"allreduce=?":       "without a name",
		"everything=ring,a": `unknown collective "everything"`,
	} {
		if _, err := plan.Select(q, m, hint, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hint %q: %v; want %q in it", hint, err, want)
		}
	}
	one := q
	one.Topo = &plan.Topology{Host: make([]int, 4)}
	_, err := plan.Select(one, m, "direct", func(a plan.Algorithm) bool { return !a.Mapped })
	if !errors.Is(err, plan.ErrNoAlgorithm) || !strings.Contains(err.Error(),
		"memory that all ranks of the host can map") {
		t.Errorf("a forbidden hint: %v", err)
	}
	if a, err := plan.Select(one, m, "direct?", func(a plan.Algorithm) bool { return !a.Mapped }); err != nil || a.Mapped {
		t.Errorf("a forbidden wish: %s, %v", a.Name, err)
	}
	_, err = plan.Select(q, m, "", func(a plan.Algorithm) bool { return a.Mapped })
	if !errors.Is(err, plan.ErrNoAlgorithm) || !errors.Is(err, plan.ErrUnsupported) {
		t.Errorf("nothing allowed: %v", err)
	}
}

func TestMachineJSON(t *testing.T) {
	m := plan.DefaultMachine()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back plan.Machine
	if err := json.Unmarshal(data, &back); err != nil || back != m {
		t.Errorf("%s came back as %+v (%v)", data, back, err)
	}
}

func TestRegister(t *testing.T) {
	mustPanic := func(name string, a plan.Algorithm) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		plan.Register(a)
	}
	ring, ok := plan.Lookup(plan.AllReduce, "ring")
	if !ok {
		t.Fatal("no ring")
	}
	mustPanic("twice", ring)
	ring.Generate = nil
	mustPanic("no generator", ring)
	mustPanic("a name with a space", plan.Algorithm{Name: "a b", Collective: plan.Barrier,
		Generate: func(plan.Request) (*plan.Plan, error) { return nil, nil }})
	if _, ok := plan.Lookup(plan.AllReduce, "nothing"); ok {
		t.Error("found an algorithm that does not exist")
	}
}

func TestBadRequests(t *testing.T) {
	for want, q := range map[string]plan.Request{
		"world of 0":                     {Collective: plan.Barrier},
		"rank 3 is not":                  {Collective: plan.Barrier, World: 3, Rank: 3},
		"root -1 is not":                 {Collective: plan.Broadcast, World: 3, Root: -1, ElemSize: 1},
		"negative count":                 {Collective: plan.AllReduce, World: 3, Count: -1, ElemSize: 1},
		"element size 0":                 {Collective: plan.AllReduce, World: 3},
		"2 Counts for":                   {Collective: plan.Gather, World: 3, ElemSize: 1, Counts: []int{1, 2}},
		"Counts[0] is 36028797018963969": {Collective: plan.Gather, World: 2, ElemSize: 1, Counts: []int{1<<55 + 1, 0}},
		"all_reduce has no Counts":       {Collective: plan.AllReduce, World: 2, ElemSize: 1, Counts: []int{1, 2}},
		"all_to_all has no Counts":       {Collective: plan.AllToAll, World: 2, ElemSize: 1, Counts: []int{1, 2}},
		"all_gather has no SendCounts": {Collective: plan.AllGather, World: 2, ElemSize: 1, SendCounts: []int{1, 2},
			RecvCounts: []int{1, 2}},
		"Counts[1] is -2": {Collective: plan.Gather, World: 2, ElemSize: 1, Counts: []int{1, -2}},
		"come together":   {Collective: plan.AllToAll, World: 2, ElemSize: 1, SendCounts: []int{1, 2}},
		"to itself": {Collective: plan.AllToAll, World: 2, ElemSize: 1, SendCounts: []int{1, 2},
			RecvCounts: []int{2, 2}},
		"in place needs": {Collective: plan.AllToAll, World: 2, ElemSize: 1, SendCounts: []int{1, 2},
			RecvCounts: []int{1, 3}, InPlace: true},
		"topology of 1 ranks":     {Collective: plan.Barrier, World: 2, Topo: &plan.Topology{Host: []int{0}}},
		"rank 0 is on host 1":     {Collective: plan.Barrier, World: 2, Topo: &plan.Topology{Host: []int{1, 0}}},
		"unknown collective":      {World: 2},
		"negative stage or chunk": {Collective: plan.Barrier, World: 2, StageBytes: -1},
	} {
		if err := q.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
		if _, err := plan.Select(q, plan.DefaultMachine(), "", nil); err == nil {
			t.Errorf("%+v: selected", q)
		}
	}
}
