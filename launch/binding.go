package launch

import (
	"fmt"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/wire"
)

// Binding says what each rank of a node is bound to: the processors that it may run on, and what it starts.
type Binding string

// The bindings. Ranks get the parts of the node in their order: the first of four ranks on two sockets are bound to the
// first socket. Memory follows, as Linux takes it from the node of the processor that touches it first.
const (
	BindNone   Binding = "none"   // all that the launcher may run on
	BindCore   Binding = "core"   // a core, with its hardware threads
	BindSocket Binding = "socket" // the cores of a socket, which several ranks share if there are more of them
	BindNUMA   Binding = "numa"   // those of a NUMA node, likewise
)

// bound is what one rank is bound to.
type bound struct {
	cpus    sys.CPUSet
	cores   []sys.Core
	sharing int // ranks that have the same
}

// bind divides the cores of a node among its ranks. It returns nil, and why, if they are left unbound.
func (b Binding) bind(cores []sys.Core, ranks int) (all []bound, why string) {
	if ranks > len(cores) {
		return nil, fmt.Sprintf("%d ranks on %d cores", ranks, len(cores))
	}
	part := func(c sys.Core) int { return c.CPUs[0] }
	switch b {
	case BindSocket:
		part = func(c sys.Core) int { return c.Socket }
	case BindNUMA:
		part = func(c sys.Core) int { return c.Node }
	}
	var parts []bound
	at := map[int]int{}
	for _, c := range cores {
		i, ok := at[part(c)]
		if !ok {
			i = len(parts)
			at[part(c)], parts = i, append(parts, bound{})
		}
		parts[i].cores, parts[i].cpus = append(parts[i].cores, c), parts[i].cpus.Or(c.CPUs)
	}
	for r := range ranks {
		parts[r*len(parts)/ranks].sharing++
	}
	for r := range ranks {
		all = append(all, parts[r*len(parts)/ranks])
	}
	return all, ""
}

// threads is how many threads a rank keeps busy: one for each core, as hardware threads of one core share its
// arithmetic.
func (b *bound) threads() int { return max(1, len(b.cores)/b.sharing) }

// String says where the rank is.
func (b *bound) String() string {
	var sockets, nodes sys.CPUSet
	for _, c := range b.cores {
		sockets, nodes = sockets.Or(sys.CPUSet{max(0, c.Socket)}), nodes.Or(sys.CPUSet{c.Node})
	}
	several := func(n int, what string) string {
		if n > 1 {
			what += "s"
		}
		return what
	}
	return fmt.Sprintf("processors %v: %d %s of %s %v, NUMA %s %v", b.cpus, len(b.cores), several(len(b.cores), "core"),
		several(len(sockets), "socket"), sockets, several(len(nodes), "node"), nodes)
}

// bindings finds what the ranks of this node are bound to, and says so if that's wanted.
func (r *runner) bindings() error {
	j := r.job
	if j.Bind == BindNone && !j.ReportBindings {
		return nil
	}
	allowed, err := sys.AllowedCPUs()
	if err != nil {
		return fmt.Errorf("launch: binding ranks: %w", err)
	}
	if j.Bind != BindNone {
		cores, err := sys.Cores("/sys/devices/system", allowed)
		if err != nil {
			return fmt.Errorf("launch: binding ranks: %w", err)
		}
		var why string
		if r.bound, why = j.Bind.bind(cores, len(r.places)); why != "" {
			r.console.Printf("%s: the ranks are not bound", why)
		}
	}
	if !j.ReportBindings {
		return nil
	}
	var ranks []int
	for i, p := range r.places {
		ranks = append(ranks, p.Rank)
		if r.bound != nil {
			r.console.Printf("rank %d is bound to %v", p.Rank, &r.bound[i])
		}
	}
	if r.bound == nil {
		r.console.Printf("not bound, on processors %v: %s", allowed, wire.NamedRanks(ranks))
	}
	return nil
}
