package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
)

// Device is an engine behind sockets, as accl.New takes it. One call at a time is under way.
type Device struct {
	mu       sync.Mutex // one command at a time
	commands *zmtp.Req
	broken   error // once a command had no answer

	toEngine *zmtp.Pub
	kernel   *zmtp.Sub
	sockets  []io.Closer // all of them, and those of Watch
	tasks    sync.WaitGroup
	close    sync.Once

	queue  chan *handle
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	stop   <-chan struct{} // when it does

	memory sync.Mutex
	next   [2]uint64
	spare  [2]map[int][]uint64 // freed memory, by size
	sizes  [2]map[uint64]int

	streams sync.Mutex
	out     map[uint32]*engine.Stream
	attach  func(stream uint32, data []byte)
	lost    error // what has ended the connection
	onGone  func(error)

	world, rank, start int
}

var _ accl.Device = (*Device)(nil)

// answerTime is how long a command may take: an emulator may be about to start.
const answerTime = 30 * time.Second

// Dial connects to the engine of a rank, which may come later.
func Dial(ctx context.Context, world, rank, startPort int) (*Device, error) {
	if rank < 0 || rank >= world {
		return nil, fmt.Errorf("rank %d of %d", rank, world)
	}
	d := &Device{queue: make(chan *handle, maxQueued), world: world, rank: rank, start: startPort,
		out: map[uint32]*engine.Stream{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.stop = d.ctx.Done()
	for i := range d.spare {
		d.next[i], d.spare[i], d.sizes[i] = granule, map[int][]uint64{}, map[uint64]int{}
	}
	if err := d.connect(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.tasks.Go(d.calls)
	d.tasks.Go(d.fromEngine)
	return d, nil
}

func (d *Device) connect(ctx context.Context) (err error) {
	if d.toEngine, err = zmtp.ListenPub(at(d.start+3*d.world+d.rank), accepting(maxSubscription, nil)); err != nil {
		return err
	}
	d.sockets = append(d.sockets, d.toEngine)
	if d.commands, err = zmtp.DialReq(ctx, at(d.start+d.rank), connecting(maxAnswer)); err != nil {
		return err
	}
	d.sockets = append(d.sockets, d.commands)
	d.kernel = zmtp.NewSub(connecting(maxKernelData), "")
	d.sockets = append(d.sockets, d.kernel)
	return d.kernel.Dial(ctx, at(d.start+2*d.world+d.rank))
}

// Close implements accl.Device. The engine behind the sockets goes on.
func (d *Device) Close() (err error) {
	d.close.Do(func() {
		d.cancel()
		for _, s := range d.sockets {
			err = errors.Join(err, s.Close())
		}
		d.tasks.Wait()
	})
	return err
}

// do sends a command and waits for the answer.
func (d *Device) do(c command) (r reply, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return r, d.broken
	}
	answer, err := d.commands.Do(c.encode(), answerTime)
	switch {
	case err == nil:
		return parseReply(answer)
	case d.ctx.Err() != nil:
		d.broken = errors.New("the device is closed")
		return r, d.broken
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer to a command for %v", answerTime)
	}
	return r, d.gone(err)
}

// ErrGone says that the engine behind the sockets doesn't answer any more.
var ErrGone = errors.New("the engine is gone")

// gone notes that the engine is. The lock is held.
func (d *Device) gone(cause error) error {
	d.broken = fmt.Errorf("%w: %w", ErrGone, cause)
	return d.broken
}

// must is do for commands that have to succeed.
func (d *Device) must(c command) (reply, error) {
	r, err := d.do(c)
	if err == nil && r.Status != statusOK {
		err = fmt.Errorf("the engine refuses command %d at %#x: status %d", c.Type, c.Addr, r.Status)
	}
	return r, err
}

// Read implements accl.Device.
func (d *Device) Read(addr uint32) (uint32, error) {
	r, err := d.must(command{Type: readRegister, Addr: uint64(addr)})
	if err != nil {
		return 0, err
	}
	if r.Value == nil {
		return 0, errors.New("the engine's answer has no word")
	}
	return *r.Value, nil
}

// Write implements accl.Device.
func (d *Device) Write(addr, value uint32) error {
	_, err := d.must(command{Type: writeRegister, Addr: uint64(addr), Value: value})
	return err
}

// granule is what buffers are aligned to.
const granule = 4096

func spaceOf(at accl.MemoryKind) int {
	if at.Host {
		return 1
	}
	return 0
}

// Alloc implements accl.Device.
func (d *Device) Alloc(n int, at accl.MemoryKind) (uint64, []byte, error) {
	size := max(1, (n+granule-1)/granule) * granule
	i := spaceOf(at)
	d.memory.Lock()
	defer d.memory.Unlock()
	addr := d.next[i]
	if free := d.spare[i][size]; len(free) > 0 {
		addr = free[len(free)-1]
		d.spare[i][size] = free[:len(free)-1]
	} else if d.next[i] += uint64(size); d.next[i] > 1<<32 {
		return 0, nil, errors.New("the engine's memory is full")
	}
	if _, err := d.must(command{Type: allocMemory, Addr: addr, Len: uint64(size), Host: at.Host}); err != nil {
		return 0, nil, err
	}
	d.sizes[i][addr] = size
	return addr, nil, nil
}

// Map implements accl.Device: the engine can't reach memory of this process.
func (d *Device) Map([]byte, accl.MemoryKind) (uint64, bool) { return 0, false }

// Free implements accl.Device.
func (d *Device) Free(addr uint64, at accl.MemoryKind) error {
	i := spaceOf(at)
	d.memory.Lock()
	defer d.memory.Unlock()
	if size := d.sizes[i][addr]; size > 0 {
		delete(d.sizes[i], addr)
		d.spare[i][size] = append(d.spare[i][size], addr)
	}
	return nil
}

// ReadMemory implements accl.Device.
func (d *Device) ReadMemory(addr uint64, at accl.MemoryKind, into []byte) error {
	for len(into) > 0 {
		n := min(len(into), transfer)
		r, err := d.must(command{Type: readMemory, Addr: addr, Len: uint64(n), Host: at.Host})
		if err == nil && len(r.Data) != n {
			err = fmt.Errorf("the engine's answer has %d bytes of %d", len(r.Data), n)
		}
		if err != nil {
			return err
		}
		copy(into, r.Data)
		addr, into = addr+uint64(n), into[n:]
	}
	return nil
}

// WriteMemory implements accl.Device.
func (d *Device) WriteMemory(addr uint64, at accl.MemoryKind, from []byte) error {
	for len(from) > 0 {
		n := min(len(from), transfer)
		if _, err := d.must(command{Type: writeMemory, Addr: addr, Data: from[:n], Host: at.Host}); err != nil {
			return err
		}
		addr, from = addr+uint64(n), from[n:]
	}
	return nil
}

// Push implements accl.Device.
func (d *Device) Push(_ context.Context, b []byte) error {
	return d.toEngine.Send(streamMessage(0, b))
}

// Pull implements accl.Device.
func (d *Device) Pull(ctx context.Context, stream uint32, b []byte) error {
	return d.stream(stream).Pull(ctx, b)
}

func (d *Device) stream(id uint32) *engine.Stream {
	d.streams.Lock()
	defer d.streams.Unlock()
	s := d.out[id]
	if s == nil {
		s = engine.NewStream()
		d.out[id] = s
	}
	return s
}

// Attach implements accl.Device.
func (d *Device) Attach(kernel func(stream uint32, data []byte)) {
	d.streams.Lock()
	defer d.streams.Unlock()
	d.attach = kernel
}

// fromEngine takes what goes to the kernel.
func (d *Device) fromEngine() {
	for {
		frames, err := d.kernel.Recv()
		if err != nil {
			select {
			case <-d.stop:
			default:
				d.lose(err)
			}
			return
		}
		id, data, err := parseStream(frames)
		if err != nil {
			continue // not a packet of a stream
		}
		d.streams.Lock()
		kernel := d.attach
		d.streams.Unlock()
		if kernel != nil {
			kernel(id, data)
		} else {
			d.stream(id).Push(data)
		}
	}
}

// OnGone has a function called, once, when the engine's process has ended; at once if it has.
func (d *Device) OnGone(f func(error)) {
	d.streams.Lock()
	lost := d.lost
	d.onGone = f
	d.streams.Unlock()
	if lost != nil {
		f(lost)
	}
}

// Watch has a function called when the process of another rank's engine ends. It's called once, before Close.
func (d *Device) Watch(lost func(rank int, cause error)) {
	for r := range d.world {
		if r == d.rank {
			continue
		}
		s := zmtp.NewSub(connecting(maxKernelData)) // to nothing: all that comes is the end
		d.sockets = append(d.sockets, s)
		d.tasks.Go(func() {
			err := s.Dial(d.ctx, at(d.start+2*d.world+r))
			if err == nil {
				_, err = s.Recv()
			}
			select {
			case <-d.stop:
			default:
				lost(r, fmt.Errorf("%w: %w", ErrGone, err))
			}
		})
	}
}

func (d *Device) lose(cause error) {
	d.streams.Lock()
	d.lost = fmt.Errorf("%w: %w", ErrGone, cause)
	f := d.onGone
	d.streams.Unlock()
	if f != nil {
		f(d.lost)
	}
}

// maxQueued is how many calls wait for their turn.
const maxQueued = 1024

// Queue implements accl.Device. All queues are one: the engine has one call at a time.
func (d *Device) Queue() accl.Queue { return queue{d} }

type queue struct{ *Device }

// Start implements accl.Queue.
func (q queue) Start(c abi.Call) (accl.Handle, error) {
	h := &handle{call: c, done: make(chan struct{}), drop: make(chan struct{})}
	select {
	case q.queue <- h:
		return h, nil
	case <-q.stop:
		return nil, errors.New("the device is closed")
	}
}

// handle is a call.
type handle struct {
	call   abi.Call
	done   chan struct{}
	drop   chan struct{}
	once   sync.Once
	status abi.Status
	cycles uint64
	err    error
}

func (h *handle) Done() <-chan struct{}               { return h.done }
func (h *handle) Result() (abi.Status, uint64, error) { return h.status, h.cycles, h.err }

// Drop resets the engine, which has no other way to end a call.
func (h *handle) Drop() { h.once.Do(func() { close(h.drop) }) }

// calls carries out calls, one after the other.
func (d *Device) calls() {
	for {
		select {
		case <-d.stop:
			for {
				select {
				case h := <-d.queue:
					h.err = errors.New("the device is closed")
					close(h.done)
				default:
					return
				}
			}
		case h := <-d.queue:
			h.err = d.run(h)
			close(h.done)
		}
	}
}

const (
	pollMin = 20 * time.Microsecond
	pollMax = time.Millisecond
	// resetTime is how long an engine may take to drop a call.
	resetTime = time.Second
)

func (d *Device) run(h *handle) error {
	select {
	case <-h.drop:
		h.status = abi.NotReady
		return nil
	default:
	}
	start := func(c abi.Call) error {
		r, err := d.do(command{Type: startCall, Call: c})
		if err == nil && r.Status < 0 {
			err = fmt.Errorf("the engine has no such controller")
		}
		return err
	}
	if err := start(h.call); err != nil {
		return err
	}
	drop, deadline := h.drop, (<-chan time.Time)(nil)
	open := 1 // completions to consume
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		r, err := d.do(command{Type: waitCall})
		switch {
		case err != nil:
			return err
		case r.Status < 0:
			return fmt.Errorf("the engine has no such controller")
		case r.Status == statusOK:
			if open--; open == 0 {
				return d.result(h)
			}
			continue
		}
		select {
		case <-time.After(pause):
		case <-drop:
			drop, deadline = nil, time.After(resetTime)
			if err := start(abi.Call{Scenario: abi.Config, Function: uint32(abi.Reset)}); err != nil {
				return err
			}
			open++
			h.status = abi.NotReady
		case <-deadline:
			d.mu.Lock()
			defer d.mu.Unlock()
			d.broken = fmt.Errorf("the engine didn't drop a call within %v", resetTime)
			return d.broken
		case <-d.stop:
			return errors.New("the device is closed")
		}
	}
}

// result reads what the engine has returned.
func (d *Device) result(h *handle) error {
	status, err := d.Read(abi.ReturnValue)
	cycles, err2 := d.Read(abi.PerfCounter)
	h.status |= abi.Status(status)
	h.cycles = uint64(cycles)
	return errors.Join(err, err2)
}
