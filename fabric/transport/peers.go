package transport

import (
	"sync"
	"sync/atomic"
)

// Peers are the links of a rank to others, by their rank. A link is made when it's first used: in a large world most
// never are. P is what a fabric keeps of a link. Safe for concurrent use.
type Peers[P any] struct {
	links []atomic.Pointer[P] // nil until they're made
	open  func(rank int) *P
	made  atomic.Pointer[[]*P]

	mu  sync.Mutex
	end func(*P) // of links that are made after Close
}

// Init makes room for the links of a world. open makes that to one rank, or returns nil if the fabric doesn't reach
// it. It's called with a lock held, and must not use the Peers.
func (x *Peers[P]) Init(size int, open func(rank int) *P) {
	x.links, x.open = make([]atomic.Pointer[P], size), open
	x.made.Store(new([]*P))
}

// To returns the link to a rank, and makes it if need be. It's nil for a rank that the fabric doesn't reach.
func (x *Peers[P]) To(rank int) *P {
	if uint(rank) >= uint(len(x.links)) {
		return nil
	}
	if p := x.links[rank].Load(); p != nil {
		return p
	}
	return x.make(rank)
}

func (x *Peers[P]) make(rank int) *P {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.links[rank].Load(); p != nil {
		return p
	}
	p := x.open(rank)
	if p == nil {
		return nil
	}
	if x.end != nil {
		x.end(p)
	}
	made := append(*x.made.Load(), p) // readers have their own length
	x.made.Store(&made)
	x.links[rank].Store(p)
	return p
}

// Made returns the link to a rank if it was made already, and nil if not.
func (x *Peers[P]) Made(rank int) *P {
	if uint(rank) >= uint(len(x.links)) {
		return nil
	}
	return x.links[rank].Load()
}

// All returns the links that were made so far. The list is not to be changed.
func (x *Peers[P]) All() []*P {
	if made := x.made.Load(); made != nil {
		return *made
	}
	return nil
}

// Close returns the links that were made so far. Those that are made afterwards are ended by end at once.
func (x *Peers[P]) Close(end func(*P)) []*P {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end = end
	return x.All()
}
