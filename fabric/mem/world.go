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
