package mem

import (
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

// world is what the ranks have in common.
type world struct {
	ranks    []*Rank
	hosts    []int
	blocking bool // waits sleep at once

	mu     sync.Mutex
	spaces map[spaceKey]*spaceMemory // being joined
}

type settings struct {
	hosts    []string
	buffer   int
	blocking bool
}

// Option changes a world.
type Option func(*settings)

// defaultBuffer is the size in bytes up to which messages are buffered.
const defaultBuffer = 1024

// Hosts names the host of every rank. Ranks of different hosts exchange messages
// but share no memory, so that worlds of several hosts can be tested.
func Hosts(ids ...string) Option { return func(s *settings) { s.hosts = ids } }

// Unbuffered makes every send wait until it's received, which brings programs
// that count on buffering to a halt.
func Unbuffered() Option { return func(s *settings) { s.buffer = -1 } }

// Buffer sets up to which size in bytes messages are buffered.
func Buffer(bytes int) Option { return func(s *settings) { s.buffer = bytes } }

// NewWorld returns the fabrics of size ranks of this process, in rank order. All
// are on one host unless Hosts says otherwise.
func NewWorld(size int, opts ...Option) []fabric.Fabric {
	s := settings{hosts: make([]string, size), buffer: defaultBuffer}
	for _, o := range opts {
		o(&s)
	}
	if len(s.hosts) != size {
		panic("mem: Hosts must name the host of every rank")
	}
	w := newWorld(s)
	fabrics := make([]fabric.Fabric, size)
	for r, f := range w.ranks {
		fabrics[r] = f
	}
	return fabrics
}

func newWorld(s settings) *world {
	w := &world{spaces: map[spaceKey]*spaceMemory{}, ranks: make([]*Rank, len(s.hosts)), hosts: number(s.hosts), blocking: s.blocking}
	for r := range w.ranks {
		m := fabric.NewMatcher(len(w.ranks))
		w.ranks[r] = &Rank{world: w, rank: r, match: m, local: fabric.NewLocal(r, m, s.buffer)}
	}
	return w
}

// number numbers the hosts in the order of their lowest ranks.
func number(ids []string) []int {
	hosts := make([]int, len(ids))
	var seen []string
	for r, id := range ids {
		h := slices.Index(seen, id)
		if h < 0 {
			h = len(seen)
			seen = append(seen, id)
		}
		hosts[r] = h
	}
	return hosts
}
