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
	words  int // of its table
	size   int
	rank   int
	queue  Queue

	// Guarded by the driver's mu.
	addr  uint32   // in exchange memory; 0 while it isn't there
	table []uint32 // then
	calls int      // under way
	used  uint64   // when the last one began
}

// area is free exchange memory.
type area struct{ from, end uint32 }

// errNoExchange says that nothing more fits.
var errNoExchange = errors.New("accl: exchange memory is full")

// place writes words where there's room for them. The lock is held.
func (d *Driver) place(words []uint32) (at uint32, err error) {
	n := uint32(4 * len(words))
	i := slices.IndexFunc(d.free, func(a area) bool { return a.end-a.from >= n })
	if i < 0 {
		return 0, errNoExchange
	}
	at = d.free[i].from
	if d.free[i].from += n; d.free[i].from == d.free[i].end {
		d.free = slices.Delete(d.free, i, i+1)
	}
	return at, d.store(at, words)
}

// unplace gives room back. The lock is held.
func (d *Driver) unplace(at uint32, words int) {
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
	c := &Communicator{driver: d, words: len(words), size: len(ranks), rank: local, queue: d.dev.Queue(), table: words}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	d.comms[c] = struct{}{}
	return c, nil
}

// load puts the communicator into exchange memory. Where that's full, those leave it that haven't been used for
// longest. The lock is held.
func (c *Communicator) load() (err error) {
	d := c.driver
	for c.addr == 0 {
		if c.addr, err = d.place(c.table); err == nil {
			c.table = nil
			return nil
		}
		c.addr = 0
		var oldest *Communicator
		for o := range d.comms {
			if o.addr != 0 && o.calls == 0 && (oldest == nil || o.used < oldest.used) {
				oldest = o
			}
		}
		if oldest == nil || !errors.Is(err, errNoExchange) {
			return err
		}
		if oldest.table, err = d.load(oldest.addr, oldest.words); err != nil {
			return err
		}
		d.unplace(oldest.addr, oldest.words)
		oldest.addr = 0
	}
	return nil
}

// begin is before a call, and returns where the communicator lies until end.
func (c *Communicator) begin() (addr uint32, err error) {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	if err := c.load(); err != nil {
		return 0, err
	}
	c.driver.began++
	c.used = c.driver.began
	c.calls++
	return c.addr, nil
}

func (c *Communicator) end() {
	if c == nil {
		return
	}
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	c.calls--
}

// Rank is this engine's rank in the communicator, and Size how many it has.
func (c *Communicator) Rank() int { return c.rank }
func (c *Communicator) Size() int { return c.size }

// Table returns what exchange memory has of it.
func (c *Communicator) Table() (table abi.Communicator, err error) {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	words := c.table
	if c.addr != 0 {
		if words, err = c.driver.load(c.addr, c.words); err != nil {
			return table, err
		}
	}
	return abi.ParseCommunicator(words)
}

// Free gives its exchange memory back. No call on it may follow, nor be under way.
func (c *Communicator) Free() {
	d := c.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.comms[c]; !there {
		return
	}
	if delete(d.comms, c); c.addr != 0 {
		d.unplace(c.addr, c.words)
	}
}
