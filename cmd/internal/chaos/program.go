package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// Program is what all ranks of one round do. It's data, and depends on nothing but its seed and mode.
type Program struct {
	Seed    uint64
	Mode    Mode
	Fabric  string // that carries the bytes
	Size    int
	Hosts   []int // the host of each rank
	Hints   map[string]string
	Unrest  int     // how often, of 16 calls of the fabric, a rank of a virtual round gives way to others
	Comms   []group // the communicators; 0 is the world
	Steps   []step
	Fault   Fault
	Timeout time.Duration // of what waits for the rank at fault
	Patient time.Duration // of all else
	Late    time.Duration // of a try to start that is to fail
	Regroup bool          // at the end those that are left make a new world
}

// Mode is where a program runs.
type Mode string

// The modes.
const (
	Virtual Mode = "virtual" // ranks are goroutines, on the fabric mem, in virtual time
	Real    Mode = "real"    // ranks are processes
)

// group is a communicator: its ranks by their number in the world, in the order of their ranks.
type group struct{ Members []int }

func (g group) has(worldRank int) bool { return slices.Contains(g.Members, worldRank) }

// action is what a step does.
type action int

const (
	collective action = iota
	split             // makes the communicators To of communicator On
	ring              // every rank sends to the next, and receives from the one before
	anySource         // rank Root receives a message of each other
	window            // puts, signals and reads through a window
	await             // waits for what the rank has issued before
	found             // makes the communicator To at a store that the culprit serves
	cross             // makes a communicator of each of Groups, at one place
)

// step is what the members of communicator On do together.
type step struct {
	Do     action
	On     int
	To     []int
	Groups [2][]int
	Kind   backend.Kind
	DType  dtype.DType
	Reduce comm.Reduction
	Count  int // elements of a block
	Root   int
	Salt   int
	Apart  bool // the output is not the input; a list's tensors are apart
	Shared bool // in memory from the communicator's allocator
	Async  bool
	Algo   string
}

func (s step) String() string {
	switch s.Do {
	case collective:
		return fmt.Sprintf("%v(%v[%d], %v) on %d", s.Kind, s.DType, s.Count, s.Reduce, s.On)
	case split:
		return fmt.Sprintf("split of %d into %v", s.On, s.To)
	case await:
		return "await"
	case found:
		return fmt.Sprintf("new communicator %v at the culprit's store", s.To)
	case cross:
		return fmt.Sprintf("new communicators of %v and %v at one place", s.Groups[0], s.Groups[1])
	}
	return fmt.Sprintf("%s of %d elements on %d", [...]string{ring: "ring", anySource: "any source",
		window: "window"}[s.Do], s.Count, s.On)
}

// maker draws a program.
type maker struct {
	*rand.Rand
	p Program
}

// Make draws the program of a seed. faults are the kinds to draw from, fabrics those of a real one; nil means all.
func Make(mode Mode, seed uint64, faults []FaultKind, fabrics []string) Program {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0x63686f727573))}
	m.p = Program{Seed: seed, Mode: mode, Hints: map[string]string{}}
	m.place(fabrics)
	m.steps()
	m.fault(faults)
	m.p.Regroup = mode == Real && m.IntN(2) == 0
	return m.p
}

// of draws one of the values.
func of[T any](m *maker, values ...T) T { return values[m.IntN(len(values))] }

// place draws the world.
func (m *maker) place(fabrics []string) {
	p := &m.p
	p.Unrest = of(m, 0, 1, 3, 6)
	if p.Mode == Virtual {
		p.Size = 2 + m.IntN(6)
		p.Fabric = "mem"
		p.Hints["fabric.buffer"] = of(m, "-1", "1024", "64")
		p.Hints["fabric.wait"] = of(m, "block", "block", "block", "auto")
	} else {
		p.Size = 2 + m.IntN(3)
		if fabrics == nil {
			fabrics = Fabrics
		}
		p.Fabric = of(m, fabrics...)
		switch p.Fabric {
		case "ucx":
			p.Hints["fabric.heartbeat"] = heartbeat.String()
			p.Hints["fabric.eager"] = of(m, "0", "4096", "65536")
			p.Hints["fabric.window"] = of(m, "0", "20000", "4194304")
		case "tcp", "auto":
			p.Hints["fabric.heartbeat"] = heartbeat.String()
			p.Hints["fabric.addr"] = "127.0.0.1"
			p.Hints["fabric.connections"] = of(m, "1", "2", "3")
			p.Hints["fabric.eager"] = of(m, "0", "4096", "65536")
		}
		if p.Fabric == "shm" || p.Fabric == "auto" {
			p.Hints["fabric.cma"] = of(m, "auto", "off")
			p.Hints["fabric.map"] = of(m, "auto", "off")
		}
	}
	p.Hints["stage_bytes"] = of(m, "4096", "16384", "65536")
	hosts := 1
	if p.Fabric == "mem" || p.Fabric == "auto" {
		hosts = 1 + m.IntN(p.Size)
	}
	p.Hosts = make([]int, p.Size)
	for r := range p.Hosts {
		p.Hosts[r] = m.IntN(hosts)
	}
	world := make([]int, p.Size)
	for r := range world {
		world[r] = r
	}
	p.Comms = []group{{world}}
}

// Fabrics are what real programs run on.
var Fabrics = []string{"shm", "tcp", "auto"}

// Named are fabrics that they run on only if a campaign names them, since not every machine or build has them.
var Named = []string{"ucx"}

// heartbeat is the interval of the heartbeats of TCP and UCX in real programs: a machine that runs many processes must
// keep up.
const heartbeat = time.Second

// loadedHeartbeat is that interval beside busy processes, where a rank that lives may not run for a second.
const loadedHeartbeat = 5 * time.Second

// kinds are the collectives.
var kinds = backend.Collectives()

// steps draws what the ranks do. A step awaits all before the end, and a barrier of the world is the last.
func (m *maker) steps() {
	p := &m.p
	n := 3 + m.IntN(10)
	for range n {
		s := step{On: m.IntN(len(p.Comms)), Salt: m.IntN(1000), Count: m.count(), Apart: m.IntN(2) == 0,
			Shared: p.Mode == Real && m.IntN(2) == 0}
		size := len(p.Comms[s.On].Members)
		s.Root = m.IntN(size)
		switch k := m.IntN(20); {
		case k < 12:
			m.collective(&s)
		case k < 14:
			m.split(&s)
		case k < 16:
			s.Do = ring
		case k < 17:
			s.Do = anySource
		case k < 18:
			s.Do = window
		default:
			s.Do = await
		}
		p.Steps = append(p.Steps, s)
	}
	p.Steps = append(p.Steps, step{Do: await}, step{Do: collective, Kind: backend.Barrier, DType: dtype.Int32})
}

// count draws a number of elements: mostly few, sometimes none, sometimes more than fit a stage.
func (m *maker) count() int {
	switch m.IntN(12) {
	case 0:
		return 0
	case 1:
		return 5000 + m.IntN(20000)
	case 2, 3:
		return 300 + m.IntN(1000)
	}
	return 1 + m.IntN(40)
}

func (m *maker) collective(s *step) {
	s.Do, s.Kind, s.DType = collective, of(m, kinds...), of(m, dtypes...)
	if !s.Kind.Operation().Reduces {
		s.Async = m.IntN(4) == 0
		return
	}
	s.Reduce = of(m, comm.Sum, comm.Sum, comm.Product, comm.Min, comm.Max, comm.Avg)
	if m.IntN(5) == 0 {
		s.Reduce = comm.PremulSum(2)
		if !s.DType.IsFloating() {
			s.Reduce = of(m, comm.BAnd, comm.BOr, comm.BXor)
		}
	}
	if !s.Kind.Operation().Admits(s.Reduce.Kind) {
		s.Reduce = comm.Sum
	}
	s.Async = m.IntN(4) == 0
	if s.Kind == backend.AllReduce && m.IntN(4) == 0 {
		s.Algo = "ring"
	}
}

// split draws a partition of some members of a communicator, in any order.
func (m *maker) split(s *step) {
	p := &m.p
	s.Do = split
	members := slices.Clone(p.Comms[s.On].Members)
	m.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if m.IntN(3) == 0 {
		members = members[:1+m.IntN(len(members))]
	}
	for len(members) > 0 {
		n := len(members)
		if m.IntN(2) == 0 {
			n = 1 + m.IntN(n)
		}
		s.To = append(s.To, len(p.Comms))
		p.Comms = append(p.Comms, group{members[:n:n]})
		members = members[n:]
	}
}
