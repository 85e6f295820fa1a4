package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Network carries messages between engines. Its methods may be called from any goroutine; for a Send and the Writes
// before it of one goroutine they arrive in order.
type Network interface {
	// Send brings a message to the engine of a session, by its Receive. It waits for no call there. The payload is the
	// caller's again when it returns.
	Send(session uint32, h *abi.Header, payload []byte) error
	// Write puts data into the memory of the engine of a session, before a Send that follows is received. It's asked
	// for with RDMA only.
	Write(session uint32, addr uint64, host bool, data []byte) error
}

// Reacher is a Network whose engines' memory can be reached where it lies, from each of them alike.
type Reacher interface {
	Network
	// Reach returns n bytes of the memory of the engine of a session, until release is called; nil if there are none.
	Reach(session uint32, addr uint64, n int, host bool) (b []byte, release func())
}

// Local is the network of engines in one process.
type Local struct {
	mu      sync.RWMutex
	engines map[uint32]*Engine
}

// NewNetwork returns a network without engines.
func NewNetwork() *Local { return &Local{engines: map[uint32]*Engine{}} }

// Attach adds an engine.
func (n *Local) Attach(session uint32, e *Engine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.engines[session] = e
}

// Detach takes an engine away, as if it had died: the others hear that it's lost.
func (n *Local) Detach(session uint32, cause error) {
	n.mu.Lock()
	_, there := n.engines[session]
	delete(n.engines, session)
	others := slices.Collect(maps.Values(n.engines))
	n.mu.Unlock()
	for _, e := range others {
		if there && e.cfg.Lost != nil {
			e.cfg.Lost(session, cause)
		}
	}
}

func (n *Local) engine(session uint32) (*Engine, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if e := n.engines[session]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("no engine has session %d", session)
}

// Port is an engine's way into the network: what its Config has as Network.
func (n *Local) Port(session uint32) Network { return port{n, session} }

type port struct {
	*Local
	session uint32
}

// Send implements Network.
func (p port) Send(session uint32, h *abi.Header, payload []byte) error {
	e, err := p.engine(session)
	if err == nil {
		e.Receive(p.session, h, payload)
	}
	return err
}

// Reach implements Reacher.
func (p port) Reach(session uint32, addr uint64, n int, host bool) (b []byte, release func()) {
	e, err := p.engine(session)
	if err != nil {
		return nil, nothing
	}
	return e.Memory.Pin(addr, n, host)
}

// Write implements Network.
func (p port) Write(session uint32, addr uint64, host bool, data []byte) error {
	e, err := p.engine(session)
	if err != nil {
		return err
	}
	return e.Memory.Write(addr, host, data).Err()
}
