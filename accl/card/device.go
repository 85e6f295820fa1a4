package card

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
)

// New returns the device of a card's engine, as accl.New takes it. Close closes the card.
func New(c Card) accl.Device {
	d := &device{card: c, queue: make(chan *call, maxQueued), stop: make(chan struct{})}
	d.caller.Go(d.calls)
	return d
}

type device struct {
	card   Card
	queue  chan *call
	stop   chan struct{}
	once   sync.Once
	caller sync.WaitGroup

	mu     sync.Mutex
	memory []Memory // by address
}

// maxQueued is how many calls wait for their turn.
const maxQueued = 1024

var (
	errClosed  = errors.New("accl: the card is closed")
	errStreams = fmt.Errorf("accl: the streams of a card's kernels end on the card: %w", errors.ErrUnsupported)
)

func (d *device) Read(addr uint32) (uint32, error) { return d.card.ReadRegister(Engine, addr) }
func (d *device) Write(addr, value uint32) error   { return d.card.WriteRegister(Engine, addr, value) }

// Alloc implements accl.Device.
func (d *device) Alloc(n int, at accl.MemoryKind) (uint64, []byte, error) {
	m, err := d.card.Alloc(n, at)
	if err != nil {
		return 0, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i, _ := d.find(m.Addr())
	d.memory = slices.Insert(d.memory, i, m)
	if at.Host || at.P2P {
		return m.Addr(), m.Bytes(), nil
	}
	return m.Addr(), nil, nil
}

// find returns the place of the buffer that begins at an address, or of the first behind it. The lock is held.
func (d *device) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(d.memory, addr, func(m Memory, a uint64) int { return cmp.Compare(m.Addr(), a) })
}

// Map implements accl.Device: the card reaches no memory but what it has given out.
func (d *device) Map([]byte, accl.MemoryKind) (uint64, bool) { return 0, false }

// Free implements accl.Device.
func (d *device) Free(addr uint64, _ accl.MemoryKind) error {
	d.mu.Lock()
	i, there := d.find(addr)
	if !there {
		d.mu.Unlock()
		return fmt.Errorf("accl: no buffer of the card begins at %#x", addr)
	}
	m := d.memory[i]
	d.memory = slices.Delete(d.memory, i, i+1)
	d.mu.Unlock()
	return m.Free()
}

// part returns the buffer that has n bytes at an address, and where in it they begin.
func (d *device) part(addr uint64, n int) (Memory, int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, there := d.find(addr)
	if !there {
		i--
	}
	if i >= 0 {
		if m := d.memory[i]; addr-m.Addr() <= uint64(len(m.Bytes())) && n <= len(m.Bytes())-int(addr-m.Addr()) {
			return m, int(addr - m.Addr()), nil
		}
	}
	return nil, 0, fmt.Errorf("accl: no buffer of the card has %d bytes at %#x", n, addr)
}

// ReadMemory implements accl.Device.
func (d *device) ReadMemory(addr uint64, _ accl.MemoryKind, into []byte) error {
	m, at, err := d.part(addr, len(into))
	if err == nil {
		err = m.FromDevice(at, len(into))
	}
	if err == nil {
		copy(into, m.Bytes()[at:])
	}
	return err
}

// WriteMemory implements accl.Device.
func (d *device) WriteMemory(addr uint64, _ accl.MemoryKind, from []byte) error {
	m, at, err := d.part(addr, len(from))
	if err != nil {
		return err
	}
	copy(m.Bytes()[at:], from)
	return m.ToDevice(at, len(from))
}

func (d *device) Push(context.Context, []byte) error         { return errStreams }
func (d *device) Pull(context.Context, uint32, []byte) error { return errStreams }
func (d *device) Attach(func(stream uint32, data []byte))    {}

// Close implements accl.Device.
func (d *device) Close() (err error) {
	d.once.Do(func() {
		close(d.stop)
		d.caller.Wait()
		err = d.card.Close()
	})
	return err
}

// Queue implements accl.Device. All queues are one: the controller has one call at a time.
func (d *device) Queue() accl.Queue { return queue{d} }

type queue struct{ *device }

// Start implements accl.Queue.
func (q queue) Start(c abi.Call) (accl.Handle, error) {
	x := &call{words: c, done: make(chan struct{}), dropped: make(chan struct{})}
	select {
	case <-q.stop:
		return nil, errClosed
	default:
	}
	select {
	case q.queue <- x:
		return x, nil
	case <-q.stop:
		return nil, errClosed
	}
}

// call is one on its way through the controller.
type call struct {
	words   abi.Call
	done    chan struct{}
	dropped chan struct{}
	drop    sync.Once
	status  abi.Status
	cycles  uint64
	err     error
}

func (x *call) Done() <-chan struct{}               { return x.done }
func (x *call) Result() (abi.Status, uint64, error) { return x.status, x.cycles, x.err }
func (x *call) Drop()                               { x.drop.Do(func() { close(x.dropped) }) }

// calls carries out calls, one after the other.
func (d *device) calls() {
	var broken error
	for {
		var x *call
		select {
		case x = <-d.queue:
		case <-d.stop:
			select {
			case x = <-d.queue:
				broken = errClosed
			default:
				return
			}
		}
		if x.err = broken; broken == nil {
			x.err = d.run(x)
		}
		if errors.Is(x.err, errHeld) {
			broken = x.err
		}
		close(x.done)
	}
}

// errHeld says that a call can't be ended.
var errHeld = errors.New("accl: the card holds a call that was given up, and has to be reset")

const (
	pollMin = time.Microsecond
	pollMax = 200 * time.Microsecond
	// resetTime is how long a call that was given up may take to end by itself.
	resetTime = time.Second
)

// run makes a call: its words go to the controller, and what the engine has returned is in exchange memory then.
func (d *device) run(x *call) error {
	select {
	case <-x.dropped:
		x.status = abi.NotReady
		return nil
	default:
	}
	for i, w := range x.words.Words() {
		if err := d.card.WriteRegister(Controller, arguments[i], w); err != nil {
			return err
		}
	}
	if err := d.card.WriteRegister(Controller, control, controlStart); err != nil {
		return err
	}
	dropped, deadline := x.dropped, (<-chan time.Time)(nil)
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		state, err := d.card.ReadRegister(Controller, control)
		if err != nil {
			return err
		}
		if state&controlDone != 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-dropped:
			dropped, deadline = nil, time.After(resetTime)
			x.status = abi.NotReady
		case <-deadline:
			return errHeld
		case <-d.stop:
			return errors.Join(errClosed, errHeld)
		}
	}
	status, err := d.Read(abi.ReturnValue)
	cycles, err2 := d.Read(abi.PerfCounter)
	x.status |= abi.Status(status)
	x.cycles = uint64(cycles)
	return errors.Join(err, err2)
}
