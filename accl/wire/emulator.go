package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
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
	commands *zmtp.Rep
	toKernel *zmtp.Pub
	kernel   *zmtp.Sub
	memory   [2]*hostmem.Segment // the device's, the host's
	callers  [controllers]caller
	sockets  []io.Closer // all of them
	tasks    sync.WaitGroup
	ctx      context.Context // ends with Close
	stop     context.CancelFunc

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
	e := &Emulator{cfg: c, net: &network{rank: c.Rank, world: c.World, protocol: c.Protocol, log: c.Log}}
	e.ctx, e.stop = context.WithCancel(context.Background())
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

func (e *Emulator) open(ctx context.Context) (err error) {
	s, w, r := e.cfg.StartPort, e.cfg.World, e.cfg.Rank
	for i := range e.memory {
		if e.memory[i], err = hostmem.AllocSparse(memorySize); err != nil {
			return err
		}
		e.engine.Memory.MapAt(0, e.memory[i].Bytes(), i == 1)
	}
	log := func(err error) { e.cfg.Log.Warn("a connection is refused or broken", "rank", r, "err", err) }
	if e.commands, err = zmtp.ListenRep(at(s+r), accepting(maxCommand, log)); err != nil {
		return err
	}
	e.sockets = append(e.sockets, e.commands)
	if e.net.pub, err = zmtp.ListenPub(at(s+w+r), accepting(maxSubscription, log)); err != nil {
		return err
	}
	e.sockets = append(e.sockets, e.net.pub)
	if e.toKernel, err = zmtp.ListenPub(at(s+2*w+r), accepting(maxSubscription, log)); err != nil {
		return err
	}
	e.sockets = append(e.sockets, e.toKernel)
	e.engine.AttachKernel(func(stream uint32, data []byte) {
		if e.cfg.Loopback {
			e.engine.FromKernel().Push(data)
		}
		e.toKernel.Send(streamMessage(stream, data))
	})
	e.net.sub = zmtp.NewSub(connecting(maxPacketText), topic(r))
	e.sockets = append(e.sockets, e.net.sub)
	for i := range w {
		if err := e.net.sub.Dial(ctx, at(s+w+i)); err != nil {
			return fmt.Errorf("the engine of rank %d: %w", i, err)
		}
	}
	e.tasks.Go(func() { e.net.receive(e.engine) })
	if !e.cfg.Loopback {
		e.kernel = zmtp.NewSub(connecting(maxKernelData), "")
		e.sockets = append(e.sockets, e.kernel)
		e.tasks.Go(e.fromKernel)
	}
	return e.net.ready(ctx)
}

// fromKernel takes what kernels say, one after the other: whichever is there.
func (e *Emulator) fromKernel() {
	port := e.cfg.StartPort + 3*e.cfg.World + e.cfg.Rank
	for e.ctx.Err() == nil {
		if err := e.kernel.Dial(e.ctx, at(port)); err != nil {
			if e.ctx.Err() == nil {
				e.cfg.Log.Warn("there is no kernel to listen to", "rank", e.cfg.Rank, "err", err)
				select {
				case <-e.ctx.Done():
				case <-time.After(time.Second):
				}
			}
			continue
		}
		for {
			frames, err := e.kernel.Recv()
			if err != nil { // it has gone; another may come
				break
			}
			_, data, err := parseStream(frames)
			if err != nil {
				e.cfg.Log.Warn("data of the kernel is dropped", "rank", e.cfg.Rank, "err", err)
				continue
			}
			e.engine.FromKernel().Push(data)
		}
	}
}

// Serve carries out commands until the context ends, or Close.
func (e *Emulator) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { e.commands.Close() })()
	e.commands.Serve(e.answer)
	return nil
}

// Close ends the engine and its sockets.
func (e *Emulator) Close() error {
	e.stop()
	var err error
	for _, s := range e.sockets { // first: the engine may be waiting for a subscriber
		err = errors.Join(err, s.Close())
	}
	e.engine.Close()
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
		if c.Len > min(*grown, maxRead) || addr > *grown-c.Len {
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
		if len(x.calls) == maxQueued {
			return reply{Status: statusNoCtrl}
		}
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
