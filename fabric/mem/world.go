package mem

import (
	"sync"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// world is what the ranks have in common.
type world struct {
	settings
	ranks []*Rank // nil for those that are reached otherwise
	hosts []int

	mu     sync.Mutex
	spaces map[spaceKey]*spaceMemory // being joined
}

type settings struct {
	hosts  []string
	buffer int
	wait   string // auto, spin, yield, block
}

// Option changes a world.
type Option func(*settings)

// defaultBuffer is the size in bytes up to which messages are buffered.
const defaultBuffer = 1024

// Unbuffered makes every send wait until it's received, which brings programs
// that count on buffering to a halt.
func Unbuffered() Option { return func(s *settings) { s.buffer = -1 } }

// NewWorld returns the fabrics of size ranks of this process, in rank order. All are on one host.
func NewWorld(size int, opts ...Option) []fabric.Fabric {
	s := settings{hosts: make([]string, size), buffer: defaultBuffer}
	for _, o := range opts {
		o(&s)
	}
	w := newWorld(s)
	fabrics := make([]fabric.Fabric, size)
	for r := range fabrics {
		fabrics[r] = w.add(r, transport.NewMatcher(size))
	}
	return fabrics
}

func newWorld(s settings) *world {
	return &world{settings: s, ranks: make([]*Rank, len(s.hosts)), hosts: transport.Hosts(s.hosts),
		spaces: map[spaceKey]*spaceMemory{}}
}

// add makes a rank of the world.
func (w *world) add(rank int, m *transport.Matcher) *Rank {
	w.ranks[rank] = &Rank{Base: transport.NewBase("mem", rank, len(w.ranks), m, w.buffer), world: w}
	return w.ranks[rank]
}
