package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Config is what an engine is made with.
type Config struct {
	Session  uint32 // what the network knows it by
	Protocol abi.Protocol
	Network  Network
	// Lost, if it isn't nil, hears of engines that are gone, from the network: on its goroutines, once for each.
	Lost func(session uint32, cause error)
	// Moves, if it isn't nil, is called after each instruction of the data mover, with its call.
	Moves func(c abi.Call, m abi.Move, from, to time.Time)
	// Loopback joins what goes to the kernel with what comes from it.
	Loopback bool
}

// Engine is an offload engine. Its methods may be called from any goroutine.
type Engine struct {
	Memory Memory

	cfg    Config
	exch   exchange
	inbox  inbox
	in     *Stream // from the kernel
	out    outputs // to the kernel
	spares spares

	maxEager      atomic.Uint32 // bytes
	maxRendezvous atomic.Uint32
	enabled       atomic.Bool

	mu     sync.Mutex
	calls  map[*Call]struct{} // that aren't done
	last   []Record           // that are: a ring from oldest on
	oldest int
	closed bool
	parked atomic.Int32
}

// New returns an engine that has just been switched on. It's to be attached to its network.
func New(c Config) *Engine {
	e := &Engine{cfg: c, in: NewStream(), calls: map[*Call]struct{}{}}
	e.inbox.engine = e
	e.out.init(e)
	e.exch.store(abi.HardwareID, uint32(c.Protocol)|
		uint32(abi.HasDMA|abi.HasArith|abi.HasCompression|abi.HasKernelStreams))
	return e
}

// Session is what the network knows the engine by.
func (e *Engine) Session() uint32 { return e.cfg.Session }

// Protocol is the engine's.
func (e *Engine) Protocol() abi.Protocol { return e.cfg.Protocol }

// Close drops all calls; later ones are dropped at once.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.inbox.mu.Lock()
	e.inbox.closed = true
	e.inbox.mu.Unlock()
	e.reset()
}

// reset drops all calls, and forgets what has come.
func (e *Engine) reset() {
	e.mu.Lock()
	calls := slices.Collect(maps.Keys(e.calls))
	e.mu.Unlock()
	for _, c := range calls {
		c.Drop()
	}
	for _, c := range calls {
		<-c.done
	}
	e.exch.store(abi.ConfigReady, 0)
	e.exch.store(abi.NumRXBuffers, 0)
	e.exch.store(abi.DirectMaxRanks, 0) // the next driver may not know it
	e.enabled.Store(false)
	e.inbox.reset()
	e.in.reset()
	e.out.reset()
}
