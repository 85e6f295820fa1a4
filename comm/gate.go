package comm

import "sync/atomic"

// A gate counts the operations that run beside the lane, so that resources outlive the operations
// that use them. Once it's closed no operation enters, and shut tells when all have left.
type gate struct {
	state atomic.Int64  // operations inside, plus gateClosed
	shut  chan struct{} // closed when the gate is closed and empty
}

const gateClosed = 1 << 62

// enter lets an operation in, unless the gate is closed.
func (g *gate) enter() bool {
	for {
		n := g.state.Load()
		if n >= gateClosed {
			return false
		}
		if g.state.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// exit ends what enter began.
func (g *gate) exit() {
	if g.state.Add(-1) == gateClosed {
		close(g.shut)
	}
}

// close refuses all later operations. It's called once.
func (g *gate) close() {
	if g.state.Add(gateClosed) == gateClosed {
		close(g.shut)
	}
}

func (g *gate) closed() bool { return g.state.Load() >= gateClosed }
