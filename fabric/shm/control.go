package shm

import (
	"fmt"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

// Control implements fabric.Fabric.
func (f *Fabric) Control(peer int, payload []byte) error {
	if len(payload) > fabric.MaxControl {
		return fmt.Errorf("shm: control payload of %d bytes; at most %d are allowed", len(payload), fabric.MaxControl)
	}
	if f.closed.Load() {
		return fabric.ErrClosed
	}
	if peer == f.rank {
		f.mail.put(f, slices.Clone(payload))
		return nil
	}
	p, err := f.peer(peer)
	if err != nil {
		return err
	}
	if err := p.failure(); err != nil {
		return err
	}
	return p.link.send(encodeControl(payload), -1)
}

// mailbox brings control payloads of a rank to itself in order, on a goroutine
// that lives while there are any: a handler may itself send some.
type mailbox struct {
	mu    sync.Mutex
	queue [][]byte
	busy  bool
}

func (b *mailbox) put(f *Fabric, payload []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, payload)
	if !b.busy {
		b.busy = true
		go b.deliver(f)
	}
}

func (b *mailbox) deliver(f *Fabric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 && !f.closed.Load() {
		payload := b.queue[0]
		b.queue = slices.Delete(b.queue, 0, 1)
		b.mu.Unlock()
		f.match.Control(f.rank, payload)
		b.mu.Lock()
	}
	b.busy = false
}
