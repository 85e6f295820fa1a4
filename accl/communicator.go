package accl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Communicator is a group of engines.
type Communicator struct {
	driver *Driver
	addr   uint32
	words  int
	size   int
	rank   int
	queue  Queue
}

// area is free exchange memory.
type area struct{ from, end uint32 }

// errNoExchange says that nothing more fits.
var errNoExchange = errors.New("accl: exchange memory is full")

// place writes words where there's room for them.
func (d *Driver) place(words []uint32) (at uint32, err error) {
	n := uint32(4 * len(words))
	d.mu.Lock()
	i := slices.IndexFunc(d.free, func(a area) bool { return a.end-a.from >= n })
	if i >= 0 {
		at = d.free[i].from
		if d.free[i].from += n; d.free[i].from == d.free[i].end {
			d.free = slices.Delete(d.free, i, i+1)
		}
	}
	d.mu.Unlock()
	if i < 0 {
		return 0, errNoExchange
	}
	return at, d.store(at, words)
}

// unplace gives room back.
func (d *Driver) unplace(at uint32, words int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, _ := slices.BinarySearchFunc(d.free, at, func(a area, at uint32) int { return int(a.from) - int(at) })
	d.free = slices.Insert(d.free, i, area{at, at + uint32(4*words)})
	for i := len(d.free) - 1; i > 0; i-- {
		if d.free[i-1].end == d.free[i].from {
			d.free[i-1].end = d.free[i].end
			d.free = slices.Delete(d.free, i, i+1)
		}
	}
}

func (d *Driver) store(at uint32, words []uint32) error {
	for i, w := range words {
		if err := d.dev.Write(at+uint32(4*i), w); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) load(at uint32, n int) ([]uint32, error) {
	words := make([]uint32, n)
	for i := range words {
		var err error
		if words[i], err = d.dev.Read(at + uint32(4*i)); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// World is the communicator of all engines: the one of calls without On.
func (d *Driver) World() *Communicator { return d.world }

// Member returns a rank of all engines, as New was told of it.
func (d *Driver) Member(rank int) abi.Rank { return d.cfg.Ranks[rank] }

// Communicator makes one of some ranks, of which this engine's is local: each of them calls it with the same list.
// Ranks keep the sessions that they have among all; two communicators of the same ranks that are in use at once differ
// in a port.
func (d *Driver) Communicator(ranks []abi.Rank, local int) (*Communicator, error) {
	if local < 0 || local >= len(ranks) {
		return nil, fmt.Errorf("accl: rank %d of a communicator of %d", local, len(ranks))
	}
	table := abi.Communicator{Local: local, Ranks: slices.Clone(ranks)}
	for i := range table.Ranks {
		table.Ranks[i].Inbound, table.Ranks[i].Outbound = 0, 0
	}
	words := table.Words()
	at, err := d.place(words)
	if err != nil {
		return nil, err
	}
	return &Communicator{driver: d, addr: at, words: len(words), size: len(ranks), rank: local, queue: d.dev.Queue()}, nil
}

// Rank is this engine's rank in the communicator, and Size how many it has.
func (c *Communicator) Rank() int { return c.rank }
func (c *Communicator) Size() int { return c.size }

// Addr is where it lies in exchange memory.
func (c *Communicator) Addr() uint32 { return c.addr }

// Table returns what lies there now.
func (c *Communicator) Table() (abi.Communicator, error) {
	words, err := c.driver.load(c.addr, c.words)
	if err != nil {
		return abi.Communicator{}, err
	}
	return abi.ParseCommunicator(words)
}

// Free gives its exchange memory back. No call on it may follow.
func (c *Communicator) Free() { c.driver.unplace(c.addr, c.words) }
