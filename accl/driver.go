package accl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Config says how a driver sets an engine up. A field of 0 gets the default of ACCL's driver.
type Config struct {
	Ranks []abi.Rank // of all engines: IP, port, session and the most bytes of a message
	Local int

	RXBuffers         int // 16
	RXBufferSize      int // 1024 bytes
	MaxEagerSize      int // 1024 bytes; more go by rendezvous, where the protocol has it
	MaxRendezvousSize int // 32768 bytes: of a spare buffer

	// ArithConfigs are pairs of types that calls may have besides abi.DefaultArithConfigs.
	ArithConfigs map[abi.Types]abi.ArithConfig

	// Staged has memory of the caller's copied to the engine's before a call and back after it, as with a card that
	// can't reach it; else the engine maps it where it can.
	Staged bool

	Tuning Tuning
}

// Tuning says when collectives by rendezvous take which way.
type Tuning struct {
	GatherFanIn        int // 2: how many ranks write to a root at once, of blocks of more than
	GatherCount        int // 32768 bytes
	BcastFlatRanks     int // 3: from more on a broadcast is a tree
	ReduceFlatRanks    int // 4: from more on a reduction is a tree, if it's of more than
	ReduceFlatMaxCount int // bytes; by default a quarter of a spare buffer, 32768 at most
	// DirectRanks is for worlds of Chorus's engines alone: up to so many ranks each combine a part of an all-reduce or a
	// reduce-scatter. Reductions then need no more memory than the spare buffers. 0: all goes as ACCL's engines have it.
	DirectRanks int
}

// Driver drives one engine.
type Driver struct {
	dev    Device
	cfg    Config
	world  *Communicator
	config map[abi.Types]uint32 // places of arithmetic configurations
	queue  Queue                // of calls that concern no communicator

	mapped, staged atomic.Uint64 // bytes

	mu      sync.Mutex
	free    []area // exchange memory
	comms   map[*Communicator]struct{}
	began   uint64 // calls
	buffers map[*Buffer]struct{}
	rx      []*Buffer
	spares  []*Buffer
	closed  bool
}

// ErrNotReady says that an engine didn't take a reset.
var ErrNotReady = errors.New("accl: the engine is still ready after a reset")

// New resets an engine and sets it up. The engine is the driver's until Close, which closes it.
func New(ctx context.Context, dev Device, c Config) (*Driver, error) {
	if c.Local < 0 || c.Local >= len(c.Ranks) {
		return nil, fmt.Errorf("accl: rank %d of %d", c.Local, len(c.Ranks))
	}
	c.RXBuffers = cmp.Or(c.RXBuffers, 16)
	c.RXBufferSize = cmp.Or(c.RXBufferSize, 1024)
	c.MaxEagerSize = cmp.Or(c.MaxEagerSize, 1024)
	c.MaxRendezvousSize = cmp.Or(c.MaxRendezvousSize, 32768)
	t := &c.Tuning
	t.GatherFanIn, t.GatherCount = cmp.Or(t.GatherFanIn, 2), cmp.Or(t.GatherCount, 32768)
	t.BcastFlatRanks, t.ReduceFlatRanks = cmp.Or(t.BcastFlatRanks, 3), cmp.Or(t.ReduceFlatRanks, 4)
	t.ReduceFlatMaxCount = cmp.Or(t.ReduceFlatMaxCount, min(c.MaxRendezvousSize/4, 32768))
	d := &Driver{dev: dev, cfg: c, config: map[abi.Types]uint32{}, queue: dev.Queue(), buffers: map[*Buffer]struct{}{},
		comms: map[*Communicator]struct{}{}}
	if err := d.initialize(ctx); err != nil {
		d.release()
		return nil, fmt.Errorf("accl: setting up the engine of rank %d: %w", c.Local, err)
	}
	return d, nil
}

// initialize is the sequence that engines are used to.
func (d *Driver) initialize(ctx context.Context) error {
	if _, err := d.dev.Read(abi.HardwareID); err != nil {
		return err
	}
	if err := d.configure(ctx, abi.Reset, 0); err != nil {
		return err
	}
	if ready, err := d.dev.Read(abi.ConfigReady); err != nil || ready != 0 {
		return errors.Join(err, iff(ready != 0, ErrNotReady))
	}
	d.free = []area{{abi.RXDescriptorAt(d.cfg.RXBuffers), abi.ConfigEnd}}
	if d.free[0].from >= abi.ConfigEnd {
		return fmt.Errorf("exchange memory has no place for %d RX buffers", d.cfg.RXBuffers)
	}
	for i := range d.cfg.RXBuffers {
		b, err := d.Buffer(d.cfg.RXBufferSize, abi.Int8)
		if err != nil {
			return err
		}
		d.rx = append(d.rx, b)
		words := abi.RXDescriptor{Addr: b.addr}.Words()
		if err := d.store(abi.RXDescriptorAt(i), words[:]); err != nil {
			return err
		}
	}
	words := []uint32{uint32(d.cfg.RXBufferSize), uint32(d.cfg.RXBuffers)}
	for i, at := range []uint32{abi.RXBufferSize, abi.NumRXBuffers} { // in this order: the engine waits for the second
		if err := d.dev.Write(at, words[i]); err != nil {
			return err
		}
	}
	for i := range abi.NumSpares {
		b, err := d.Buffer(d.cfg.MaxRendezvousSize, abi.Int8)
		if err != nil {
			return err
		}
		d.spares = append(d.spares, b)
		if err := d.store(uint32(abi.SpareBuffers+8*i), []uint32{uint32(b.addr), uint32(b.addr >> 32)}); err != nil {
			return err
		}
	}
	var err error
	if d.world, err = d.Communicator(d.cfg.Ranks, d.cfg.Local); err != nil {
		return err
	}
	if err := d.writeConfigs(); err != nil {
		return err
	}
	t := d.cfg.Tuning
	for i, v := range []int{t.GatherFanIn, t.GatherCount, t.BcastFlatRanks, t.ReduceFlatRanks, t.ReduceFlatMaxCount} {
		if err := d.dev.Write(uint32(abi.GatherFlatMaxFanIn+4*i), uint32(v)); err != nil {
			return err
		}
	}
	if t.DirectRanks > 0 {
		if err := d.dev.Write(abi.DirectMaxRanks, uint32(t.DirectRanks)); err != nil {
			return err
		}
	}
	if err := d.dev.Write(abi.ConfigReady, 1); err != nil {
		return err
	}
	for _, c := range []struct {
		f     abi.ConfigFunction
		count int
	}{{abi.SetTimeout, 1_000_000}, {abi.SetMaxEagerSize, d.cfg.MaxEagerSize},
		{abi.SetMaxRendezvousSize, d.cfg.MaxRendezvousSize}, {abi.Enable, 0}} {
		if err := d.configure(ctx, c.f, c.count); err != nil {
			return err
		}
	}
	return nil
}

func iff(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

// writeConfigs writes the arithmetic configurations, the default ones in their order.
func (d *Driver) writeConfigs() error {
	order, all := abi.DefaultArithConfigs()
	more := slices.SortedFunc(maps.Keys(d.cfg.ArithConfigs), func(a, b abi.Types) int {
		return cmp.Or(cmp.Compare(a.Uncompressed, b.Uncompressed), cmp.Compare(a.Compressed, b.Compressed))
	})
	for _, t := range more {
		if _, there := all[t]; !there {
			order = append(order, t)
		}
		all[t] = d.cfg.ArithConfigs[t]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range order {
		at, err := d.place(all[t].Words())
		if err != nil {
			return err
		}
		d.config[t] = at
	}
	return nil
}

// configure makes a call that sets the engine up.
func (d *Driver) configure(ctx context.Context, f abi.ConfigFunction, count int) error {
	return d.start(ctx, &call{queue: d.queue, words: abi.Call{Scenario: abi.Config, Function: uint32(f),
		Count: uint32(count)}})
}

// Rank is this engine's rank among all, and Size how many they are.
func (d *Driver) Rank() int { return d.cfg.Local }
func (d *Driver) Size() int { return len(d.cfg.Ranks) }

// HWID says what the engine is made of.
func (d *Driver) HWID() (abi.HWID, error) {
	v, err := d.dev.Read(abi.HardwareID)
	return abi.HWID(v), err
}

// SetTimeout tells the engine its timeout, of which today's engines make no use: the context of a call ends it.
func (d *Driver) SetTimeout(ctx context.Context, v int) error {
	return d.configure(ctx, abi.SetTimeout, v)
}

// Nop makes a call that does nothing.
func (d *Driver) Nop(ctx context.Context, opts ...Option) error {
	c := &call{queue: d.queue, words: abi.Call{Scenario: abi.Nop}}
	for _, o := range opts {
		o(c)
	}
	return d.start(ctx, c)
}

// Reset drops all calls. The engine can't be used any more without a new driver.
func (d *Driver) Reset(ctx context.Context) error { return d.configure(ctx, abi.Reset, 0) }

// Traffic counts the bytes that calls took and gave, in memory of the caller's that the engine has mapped or its own,
// and those that were copied for it.
type Traffic struct{ Mapped, Staged uint64 }

// Traffic returns what there was so far.
func (d *Driver) Traffic() Traffic { return Traffic{d.mapped.Load(), d.staged.Load()} }

// Device is the driver's.
func (d *Driver) Device() Device { return d.dev }

// Close resets the engine, frees the driver's buffers and closes the device.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	err := d.configure(context.Background(), abi.Reset, 0)
	d.release()
	return errors.Join(err, d.dev.Close())
}

func (d *Driver) release() {
	d.mu.Lock()
	all := d.buffers
	d.buffers = map[*Buffer]struct{}{}
	d.mu.Unlock()
	for b := range all {
		b.Free()
	}
}
