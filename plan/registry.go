package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Algorithm is a generator and what there is to know about it before it runs.
type Algorithm struct {
	Name       string // unique within its collective; what a hint says; letters, digits and _-.:
	Collective Collective
	Doc        string   // one line for people
	Tags       []string // free words, such as "tree" or "large"

	// OneSided plans use Stage, Notify and Await; they need Request.StageBytes.
	OneSided bool
	// OneHost plans need all ranks on one host.
	OneHost bool
	// Mapped plans need every rank's In and Out to be memory that the other
	// ranks of its host can map.
	Mapped bool

	// Supports reports why a request is beyond the algorithm. It is asked after
	// the checks that follow from the fields above, must give the same answer
	// for every rank, and may be nil.
	Supports func(Request) error
	// Generate returns the plan of rank q.Rank. It is a pure function.
	Generate func(q Request) (*Plan, error)
	// Cost estimates the seconds that the operation takes, the same for every
	// rank. If it is nil, the steps of the plan of rank 0 are priced.
	Cost func(Request, Machine) float64
}

// ErrUnsupported is what errors of Check match with errors.Is.
var ErrUnsupported = errors.New("unsupported request")

// Check reports why the algorithm cannot serve the request; nil if it can.
func (a Algorithm) Check(q Request) error {
	if err := q.Validate(); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("plan: %s %s: %w: %s", a.Collective, a.Name, ErrUnsupported, fmt.Sprintf(format, args...))
	}
	switch {
	case q.Collective != a.Collective:
		return refuse("it was asked for %s", q.Collective)
	case q.World == 1:
		return nil
	case a.OneHost && q.Topo.Hosts(q.World) != 1:
		return refuse("it needs all ranks on one host, and there are %d hosts", q.Topo.Hosts(q.World))
	case a.OneSided && q.StageBytes == 0:
		return refuse("it needs shared scratch, and the ranks have none")
	}
	if a.Supports != nil {
		if err := a.Supports(q); err != nil {
			return refuse("%v", err)
		}
	}
	return nil
}

// Plan generates the plan of rank q.Rank after checking that it can.
func (a Algorithm) Plan(q Request) (*Plan, error) {
	if err := a.Check(q); err != nil {
		return nil, err
	}
	return a.Generate(q)
}

var registry struct {
	sync.RWMutex
	of [len(collectiveNames)][]Algorithm
}

// Register makes an algorithm available to Select and Lookup. It panics if the
// algorithm is incomplete or its name is taken, for both are programming errors.
// Call it from an init function: every rank must register the same algorithms.
func Register(a Algorithm) {
	if !validName(a.Name) || a.Generate == nil || !a.Collective.valid() {
		panic(fmt.Sprintf("plan: Register of an incomplete algorithm %q for %s", a.Name, a.Collective))
	}
	registry.Lock()
	defer registry.Unlock()
	list := registry.of[a.Collective]
	at, taken := slices.BinarySearchFunc(list, a.Name, byName)
	if taken {
		panic(fmt.Sprintf("plan: Register called twice for %s %q", a.Collective, a.Name))
	}
	registry.of[a.Collective] = slices.Insert(slices.Clone(list), at, a)
}

func byName(a Algorithm, name string) int {
	switch {
	case a.Name < name:
		return -1
	case a.Name > name:
		return 1
	}
	return 0
}

// Algorithms returns the algorithms of a collective in the order of their
// names, which does not depend on the order of registration. The caller must
// not change the slice.
func Algorithms(c Collective) []Algorithm {
	if int(c) >= len(registry.of) {
		return nil
	}
	registry.RLock()
	defer registry.RUnlock()
	return registry.of[c]
}

// Lookup finds an algorithm by its name.
func Lookup(c Collective, name string) (Algorithm, bool) {
	list := Algorithms(c)
	if at, ok := slices.BinarySearchFunc(list, name, byName); ok {
		return list[at], true
	}
	return Algorithm{}, false
}

// builtin completes and registers one of the generators of this package.
func builtin(a Algorithm, generate func(*Builder)) {
	name := a.Name
	a.Generate = func(q Request) (*Plan, error) { return Build(name, q, generate) }
	Register(a)
}

// validName reports whether an algorithm's name can stand in hints and texts.
func validName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:", r))
	})
}
