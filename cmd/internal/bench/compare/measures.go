package main

import "slices"

// measure is a group of rows: the operations, their sizes, and the series that run them.
type measure struct {
	name   string
	ops    []string
	sizes  []int
	refill bool
	ranks  int
	class  string // of the settings
	fabric string // ours
	bind   bool   // our ranks to cores, as mpirun binds its
	ours   []ours
	mpi    bool // only the peers that are MPIs
	alone  bool // no peers
}

// ours is a series of ours: all run in the same ranks.
type ours struct{ name, memory, dtype string }

const (
	kib = 1 << 10
	mib = 1 << 20
)

var (
	both       = []ours{{"chorus.mapped", "mapped", "f32"}, {"chorus.ordinary", "ordinary", "f32"}}
	mapped     = both[:1]
	collective = []string{"broadcast", "all_gather", "reduce_scatter", "all_to_all"}
	counted    = append([]string{"all_reduce", "barrier"}, collective...) // whose allocations are counted
)

// The order is that of the run: what takes longest comes last, since --limit may cut it off.
var measures = []measure{
	{name: "all_reduce", ops: []string{"all_reduce"}, ranks: 2, ours: both, fabric: "shm", bind: true,
		sizes: []int{8, 64, kib, 4 * kib, 16 * kib, 64 * kib, 128 * kib, 256 * kib, mib, 4 * mib, 16 * mib, 64 * mib,
			256 * mib}},
	{name: "collectives", ops: collective, ranks: 2, ours: mapped, fabric: "shm", bind: true, mpi: true,
		sizes: []int{64 * kib, 256 * kib, mib, 4 * mib, 16 * mib, 64 * mib}},
	{name: "tcp", ops: []string{"all_reduce"}, ranks: 2, ours: mapped, fabric: "tcp", class: classTCP,
		sizes: []int{mib, 4 * mib, 16 * mib, 64 * mib}},
	{name: "crowd", ops: []string{"all_reduce"}, ranks: 8, ours: mapped, fabric: "shm", class: classCrowd, mpi: true,
		sizes: []int{8, kib, 16 * kib, 256 * kib, 4 * mib, 64 * mib}},
	{name: "dtypes", ops: []string{"all_reduce"}, ranks: 2, fabric: "shm", bind: true, alone: true,
		ours:  []ours{{"chorus.f32", "mapped", "f32"}, {"chorus.bf16", "mapped", "bf16"}, {"chorus.f16", "mapped", "f16"}},
		sizes: []int{256 * kib, mib, 4 * mib, 16 * mib, 64 * mib}},
	{name: "allocs", ops: counted, ranks: 2, ours: mapped, fabric: "shm", bind: true, alone: true},
	{name: "refill", ops: []string{"all_reduce"}, ranks: 2, ours: both, fabric: "shm", bind: true, refill: true,
		sizes: []int{16 * kib, 64 * kib, 256 * kib, mib, 4 * mib, 16 * mib, 64 * mib, 256 * mib}},
}

// takesPart reports whether a setting is measured.
func (m *measure) takesPart(s *setting) bool {
	return !m.alone && s.class == m.class && (!m.mpi || s.peer().mpi)
}

// forms says whether the operation exists in place and out of place.
func forms(op string) []bool {
	switch op {
	case "broadcast":
		return []bool{true}
	case "all_to_all":
		return []bool{false}
	}
	return []bool{true, false}
}

func measureNames() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// between returns the sizes within the bounds; a bound of 0 is none.
func between(sizes []int, least, most int) []int {
	return slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n < least || most > 0 && n > most })
}
