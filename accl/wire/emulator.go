package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/hostmem"
)

// Config places an emulated engine.
type Config struct {
	World, Rank int
	StartPort   int // 5500
	Protocol    abi.Protocol
	Loopback    bool // what goes to the kernel comes back
	Log         *slog.Logger
}

// DefaultPort is where the ports of engines begin.
const DefaultPort = 5500

// controllers are how many may call an engine: two of the host, and one of a kernel.
const controllers = 3

// memorySize is how much each of an engine's memories has, of which the host gives what is touched.
const memorySize = 1 << 30

// Emulator is an engine behind sockets.
type Emulator struct {
	cfg      Config
	engine   *engine.Engine
	net      *network
	commands zmq4.Socket
	toKernel zmq4.Socket
	kernel   zmq4.Socket
	memory   [2]*hostmem.Segment // the device's, the host's
	callers  [controllers]caller
	tasks    sync.WaitGroup
	ended    sync.Once

	grown [2]uint64 // bytes of them that a driver has written or reserved
}

// caller is a controller and its calls, in order.
type caller struct {
	*engine.Controller
	calls []*engine.Call
}

// Listen opens an engine's sockets and connects it to the others, for which it waits.
func Listen(ctx context.Context, c Config) (*Emulator, error) {
	c.StartPort = cmp.Or(c.StartPort, DefaultPort)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.World < 1 || c.Rank < 0 || c.Rank >= c.World {
		return nil, fmt.Errorf("rank %d of %d", c.Rank, c.World)
	}
	forever := context.Background() // the sockets end by Close
	e := &Emulator{cfg: c, commands: zmq4.NewRep(forever), toKernel: zmq4.NewPub(forever),
		kernel: zmq4.NewSub(forever, retries()...), net: &network{rank: c.Rank, world: c.World, protocol: c.Protocol,
			log: c.Log, pub: zmq4.NewPub(forever), sub: zmq4.NewSub(forever, retries()...)}}
	e.engine = engine.New(engine.Config{Session: uint32(c.Rank), Protocol: c.Protocol, Network: e.net})
	for i := range e.callers {
		e.callers[i].Controller = e.engine.Controller()
	}
	err := e.open(ctx)
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func retries() []zmq4.Option {
	return []zmq4.Option{zmq4.WithDialerMaxRetries(-1), zmq4.WithDialerRetry(10 * time.Millisecond)}
}

func (e *Emulator) open(ctx context.Context) error {
	s, w, r := e.cfg.StartPort, e.cfg.World, e.cfg.Rank
	for i := range e.memory {
		var err error
		if e.memory[i], err = hostmem.AllocSparse(memorySize); err != nil {
			return err
		}
		e.engine.Memory.MapAt(0, e.memory[i].Bytes(), i == 1)
	}
	if err := errors.Join(e.commands.Listen(at(s+r)), e.net.pub.Listen(at(s+w+r)),
		e.toKernel.Listen(at(s+2*w+r))); err != nil {
		return err
	}
	e.engine.AttachKernel(func(stream uint32, data []byte) {
		if e.cfg.Loopback {
			e.engine.FromKernel().Push(data)
		}
		e.toKernel.SendMulti(streamMessage(stream, data))
	})
	if err := errors.Join(e.net.sub.SetOption(zmq4.OptionSubscribe, topic(r)),
		e.kernel.SetOption(zmq4.OptionSubscribe, "")); err != nil {
		return err
	}
	for i := range w {
		if err := e.net.sub.Dial(at(s + w + i)); err != nil {
			return err
		}
	}
	e.tasks.Go(func() { e.net.receive(e.engine) })
	if !e.cfg.Loopback {
		go e.kernel.Dial(at(s + 3*w + r)) // who is there when there is a kernel
		e.tasks.Go(e.fromKernel)
	}
	return e.net.ready(ctx)
}

func (e *Emulator) fromKernel() {
	for {
		m, err := e.kernel.Recv()
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil { // the kernel has gone; another may come
			continue
		}
		_, data, err := parseStream(m.Frames)
		if err != nil {
			e.cfg.Log.Warn("data of the kernel is dropped", "rank", e.cfg.Rank, "err", err)
			continue
		}
		e.engine.FromKernel().Push(data)
	}
}

// Serve carries out commands until the context ends, or Close.
func (e *Emulator) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.hangUp)
	defer stop()
	for {
		m, err := e.commands.Recv()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		r := e.answer(m.Bytes())
		if err := e.commands.Send(zmq4.NewMsg(r)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// hangUp ends the conversation with the driver.
func (e *Emulator) hangUp() { e.ended.Do(func() { e.commands.Close() }) }

// Close ends the engine and its sockets.
func (e *Emulator) Close() error {
	e.engine.Close()
	e.hangUp()
	err := errors.Join(e.toKernel.Close(), e.kernel.Close(), e.net.pub.Close(), e.net.sub.Close())
	e.tasks.Wait()
	for i, m := range e.memory {
		if m != nil {
			e.engine.Memory.Unmap(0, i == 1)
			err = errors.Join(err, m.Close())
		}
	}
	return err
}

// answer carries out a command.
func (e *Emulator) answer(b []byte) []byte {
	c, err := parseCommand(b)
	if err != nil {
		e.cfg.Log.Warn("a command that is none", "rank", e.cfg.Rank, "err", err)
		return (&reply{Status: statusBad}).encode()
	}
	r := e.carryOut(&c)
	return r.encode()
}

func (e *Emulator) carryOut(c *command) (r reply) {
	bad := func(failed bool) {
		if failed {
			r.Status = statusBad
		}
	}
	switch c.Type {
	case readRegister:
		r.Value = new(uint32)
		if c.Addr >= abi.ExchangeSize {
			bad(true)
			break
		}
		var err error
		*r.Value, err = e.engine.Read(uint32(c.Addr))
		bad(err != nil)
	case writeRegister:
		bad(c.Addr >= abi.ExchangeSize || e.engine.Write(uint32(c.Addr), c.Value) != nil)
	case readMemory:
		addr, grown := uint64(uint32(c.Addr)), e.size(c.Host)
		if c.Len > *grown || addr > *grown-c.Len {
			return reply{Status: statusBad, Data: []byte{0}}
		}
		if c.Len > 0 {
			r.Data = make([]byte, c.Len)
			bad(e.engine.Memory.Read(addr, c.Host, r.Data) != 0)
		}
	case writeMemory:
		addr := uint64(uint32(c.Addr))
		bad(!e.grow(addr, uint64(len(c.Data)), c.Host) || e.engine.Memory.Write(addr, c.Host, c.Data) != 0)
	case allocMemory:
		bad(!e.grow(uint64(uint32(c.Addr)), c.Len, c.Host))
	case startCall:
		if c.Ctrl >= controllers {
			return reply{Status: statusNoCtrl}
		}
		x := &e.callers[c.Ctrl]
		x.calls = append(x.calls, x.Start(c.Call))
	case waitCall:
		if c.Ctrl >= controllers {
			return reply{Status: statusNoCtrl}
		}
		if !e.callers[c.Ctrl].completed() {
			r.Status = statusPending
		}
	default:
		bad(true)
	}
	return r
}

// patience is how long the answer to a wait is put off while the call may still be done soon.
const patience = time.Millisecond

// completed consumes one completion, if there is any.
func (x *caller) completed() bool {
	for i, c := range x.calls {
		select {
		case <-c.Done():
			x.calls = append(x.calls[:i], x.calls[i+1:]...)
			return true
		default:
		}
	}
	if len(x.calls) == 0 {
		return false
	}
	select {
	case <-x.calls[0].Done():
		x.calls = x.calls[1:]
		return true
	case <-time.After(patience):
		return false
	}
}

func (e *Emulator) size(host bool) *uint64 {
	if host {
		return &e.grown[1]
	}
	return &e.grown[0]
}

// grow extends a memory on demand.
func (e *Emulator) grow(addr, n uint64, host bool) bool {
	if n > memorySize || addr > memorySize-n {
		return false
	}
	s := e.size(host)
	*s = max(*s, addr+n)
	return true
}
