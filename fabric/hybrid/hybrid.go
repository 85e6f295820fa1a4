package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/shm"
)

// Name is the name under which the fabric is registered.
const Name = "auto"

func init() {
	fabric.Register(Name, func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) { return Open(ctx, c) })
}

// Fabric is one rank's end of both fabrics. It implements [fabric.Fabric],
// [fabric.Sharer] and [fabric.Placer].
type Fabric struct {
	rank, size int
	hosts      []int
	locals     []int
	why        string

	match *fabric.Matcher // of both; one of them is never nil
	near  *shm.Fabric     // to the ranks of this host; nil if no memory is shared
	far   fabric.Fabric   // to all others; nil if there are none
}

var (
	_ fabric.Fabric = (*Fabric)(nil)
	_ fabric.Sharer = (*Fabric)(nil)
	_ fabric.Placer = (*Fabric)(nil)
)

// Name implements fabric.Fabric.
func (f *Fabric) Name() string { return Name }

// Rank implements fabric.Fabric.
func (f *Fabric) Rank() int { return f.rank }

// Size implements fabric.Fabric.
func (f *Fabric) Size() int { return f.size }

// Hosts implements fabric.Fabric. If no memory is shared, every rank counts as a
// host of its own.
func (f *Fabric) Hosts() []int { return slices.Clone(f.hosts) }

// Locals returns the ranks that share memory with this one, ascending, itself included.
func (f *Fabric) Locals() []int { return slices.Clone(f.locals) }

// Why returns the reason why memory isn't shared although ranks are on one host,
// or "".
func (f *Fabric) Why() string { return f.why }

// Path implements fabric.Fabric.
func (f *Fabric) Path(peer int) string {
	if peer == f.rank {
		return "self"
	}
	return f.to(peer).Path(peer)
}

// to returns the fabric that leads to a peer, or one of them for AnySource.
func (f *Fabric) to(peer int) fabric.Fabric {
	if f.isNear(peer) || f.far == nil {
		return f.near
	}
	return f.far
}

func (f *Fabric) isNear(peer int) bool {
	return f.near != nil && peer >= 0 && peer < f.size && f.hosts[peer] == f.hosts[f.rank]
}

func (f *Fabric) check(peer int) error {
	if peer < 0 || peer >= f.size {
		return fmt.Errorf("hybrid: rank %d is not in a world of %d", peer, f.size)
	}
	return nil
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	if err := f.check(m.Peer); err != nil {
		m.Complete(0, m.Peer, err)
		return
	}
	f.to(m.Peer).Send(m)
}

// Recv implements fabric.Fabric.
func (f *Fabric) Recv(m *fabric.Msg) {
	if m.Peer != fabric.AnySource {
		if err := f.check(m.Peer); err != nil {
			m.Complete(0, m.Peer, err)
			return
		}
	}
	f.to(m.Peer).Recv(m) // they have one matcher, so either will do for any source
}

// Wait implements fabric.Fabric.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	// Only the near fabric needs its waits for progress, so it gets all that it might complete.
	if f.near != nil && (m.Peer == fabric.AnySource || f.isNear(m.Peer)) || f.far == nil {
		return f.near.Wait(m, w)
	}
	return f.far.Wait(m, w)
}

// Cancel implements fabric.Fabric.
func (f *Fabric) Cancel(m *fabric.Msg) {
	switch {
	case f.far == nil:
		f.near.Cancel(m)
	case f.near == nil || m.Peer != fabric.AnySource && !f.isNear(m.Peer):
		f.far.Cancel(m)
	case m.Peer != fabric.AnySource:
		f.near.Cancel(m)
	case !m.Done() && !f.near.Withdraw(m):
		f.far.Cancel(m) // its message comes that way, or is complete in a moment
	}
}

// Announce implements fabric.Fabric.
func (f *Fabric) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	f.match.Announce(comm, tag, desc)
}

// Announced implements fabric.Fabric.
func (f *Fabric) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	return f.match.Announced(comm, tag)
}

// Forget implements fabric.Fabric.
func (f *Fabric) Forget(comm uint32) { f.match.Forget(comm) }

// Control implements fabric.Fabric.
func (f *Fabric) Control(peer int, payload []byte) error {
	if err := f.check(peer); err != nil {
		return err
	}
	return f.to(peer).Control(peer, payload)
}

// Handle implements fabric.Fabric.
func (f *Fabric) Handle(h fabric.Handler) { f.match.Handle(h) }

// Space implements fabric.Sharer.
func (f *Fabric) Space(ctx context.Context, comm uint32, members []int, stageBytes int) (*fabric.Space, error) {
	if f.near == nil {
		why := f.why
		if why == "" {
			why = "no other rank is on this host"
		}
		return nil, fmt.Errorf("hybrid: rank %d shares no memory: %s", f.rank, why)
	}
	return f.near.Space(ctx, comm, members, stageBytes)
}

// Place implements fabric.Placer.
func (f *Fabric) Place(p unsafe.Pointer, n int) fabric.Place {
	if f.near == nil {
		return fabric.Place{}
	}
	return f.near.Place(p, n)
}

// Close implements fabric.Fabric.
func (f *Fabric) Close(ctx context.Context) error {
	var near, far error
	var both sync.WaitGroup
	if f.near != nil {
		both.Go(func() { near = f.near.Close(ctx) })
	}
	if f.far != nil {
		both.Go(func() { far = f.far.Close(ctx) })
	}
	both.Wait()
	return errors.Join(near, far)
}
