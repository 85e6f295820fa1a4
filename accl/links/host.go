package links

import (
	"context"
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// host is the memory that engines of one host can map of each other's.
type host struct {
	placer  fabric.Placer
	members []int // ranks, ascending

	mu    sync.Mutex // a space is used by one goroutine
	space *fabric.Space
}

// Share has the engines of a host, if there are several, reach each other's memory where the fabric can map it. All
// ranks call it, before anything else.
func (n *Network) Share(ctx context.Context) error {
	sharer, ok := n.fab.(fabric.Sharer)
	placer, ok2 := n.fab.(fabric.Placer)
	if !ok || !ok2 {
		return nil
	}
	hosts, h := sharer.Hosts(), &n.host
	for r, at := range hosts {
		if at == hosts[n.fab.Rank()] {
			h.members = append(h.members, r)
		}
	}
	if len(h.members) == 1 {
		return nil
	}
	var err error
	if h.space, err = sharer.Space(ctx, key.Comm, h.members, 0); err == nil {
		h.placer = placer
	}
	return err
}

// Shares reports whether another engine may be able to map memory of this rank's.
func (n *Network) Shares() bool { return n.host.placer != nil }

// Place says where others find memory of this rank's; the zero Place if they can't map it.
func (n *Network) Place(p unsafe.Pointer, bytes int) fabric.Place {
	if n.host.placer == nil {
		return fabric.Place{}
	}
	return n.host.placer.Place(p, bytes)
}

var errApart = errors.New("its memory can't be mapped")

// Map returns memory of another rank, which has placed it, and keeps it.
func (n *Network) Map(w *fabric.Waiter, rank int, at fabric.Place, bytes int) (unsafe.Pointer, error) {
	h := &n.host
	m := slices.Index(h.members, rank)
	if h.placer == nil || m < 0 || !at.Mappable() {
		return nil, errApart
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.space.Resolve(w, m, at, bytes)
}

func (h *host) close() error {
	if h.space == nil {
		return nil
	}
	return h.space.Close()
}
