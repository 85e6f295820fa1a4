package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	_ "github.com/chorus-comms/chorus/fabric/shm"
	_ "github.com/chorus-comms/chorus/fabric/tcp"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Fabric is one rank's end of both fabrics.
type Fabric struct {
	transport.Base // with the Matcher of both
	rank           int
	hosts          []int // by which the near fabric is used
	locals         []int
	apart          bool // although ranks are on one host, they share no memory
	why            string
	names          [2]string // near, far

	near   fabric.Messenger // to the ranks of this host; nil if there is none. Of the two, one is never nil.
	sharer fabric.Sharer    // near, if it is one
	placer fabric.Placer    // likewise
	far    fabric.Messenger // to all others; nil if there are none

	connected atomic.Bool // all ranks that far leads to have been connected
}

var (
	_ fabric.Messenger = (*Fabric)(nil)
	_ fabric.Sharer    = (*Fabric)(nil)
	_ fabric.Placer    = (*Fabric)(nil)
)

// Hosts implements fabric.Sharer. If no memory is shared, every rank counts as a
// host of its own.
func (f *Fabric) Hosts() []int {
	hosts := slices.Clone(f.hosts)
	if f.apart {
		for r := range hosts {
			hosts[r] = r
		}
	}
	return hosts
}

// Locals returns the ranks that the near fabric leads to, ascending, this one included.
func (f *Fabric) Locals() []int { return slices.Clone(f.locals) }

// Why returns the reason why there's no near fabric although ranks are on one host,
// or "".
func (f *Fabric) Why() string { return f.why }

// Path returns the name of the fabric that leads to a peer, or "self".
func (f *Fabric) Path(peer int) string {
	switch {
	case peer == f.rank:
		return "self"
	case f.isNear(peer):
		return f.names[0]
	}
	return f.names[1]
}

// to returns the fabric that leads to a peer, or one of them for AnySource.
func (f *Fabric) to(peer int) fabric.Messenger {
	if f.isNear(peer) || f.far == nil {
		return f.near
	}
	return f.far
}

func (f *Fabric) isNear(peer int) bool {
	return f.near != nil && f.Has(peer) && f.hosts[peer] == f.hosts[f.rank]
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	if !f.Has(m.Peer) {
		m.Complete(0, m.Peer, f.NoRank(m.Peer))
		return
	}
	f.to(m.Peer).Send(m)
}

// Wait implements fabric.Fabric.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	// The near fabric may need its waits for progress, so it gets all that it might complete.
	if f.near != nil && (m.Peer == fabric.AnySource || f.isNear(m.Peer)) || f.far == nil {
		if m.Peer == fabric.AnySource {
			f.connectFar()
		}
		return f.near.Wait(m, w)
	}
	return f.far.Wait(m, w)
}

// connectFar has the far fabric connect the ranks that it leads to, from each of which a message may come. It gets no
// link to a rank of this host: the goodbye on it could overtake the last messages of the near fabric.
func (f *Fabric) connectFar() {
	far, ok := f.far.(fabric.Connector)
	if !ok || f.connected.Swap(true) {
		return
	}
	for r := range f.hosts {
		if !f.isNear(r) {
			far.Connect(r)
		}
	}
}

// Cancel implements fabric.Fabric.
func (f *Fabric) Cancel(m *fabric.Msg) {
	switch {
	case m.Done():
	case m.Peer != fabric.AnySource:
		f.to(m.Peer).Cancel(m)
	case !f.Match.Withdraw(m, fabric.ErrCanceled):
		f.to(f.Match.Source(m)).Cancel(m) // its message comes that way, or is complete in a moment
	}
}

// Handle implements fabric.Announcer.
func (f *Fabric) Handle(h fabric.Handler) {
	for _, part := range f.parts() {
		part.Handle(h) // all have one Matcher, which tells it once
	}
}

// Control implements fabric.Messenger.
func (f *Fabric) Control(peer int, payload []byte) error {
	if !f.Has(peer) {
		return f.NoRank(peer)
	}
	return f.to(peer).Control(peer, payload)
}

// Space implements fabric.Sharer.
func (f *Fabric) Space(ctx context.Context, comm uint32, members []int, stageBytes int) (*fabric.Space, error) {
	if f.sharer != nil {
		return f.sharer.Space(ctx, comm, members, stageBytes)
	}
	why := f.why
	if why == "" {
		why = "no other rank is on this host"
	}
	if f.near != nil {
		why = fmt.Sprintf("fabric %q shares none", f.names[0])
	}
	return nil, fmt.Errorf("hybrid: rank %d shares no memory: %s", f.rank, why)
}

// Place implements fabric.Placer.
func (f *Fabric) Place(p unsafe.Pointer, n int) fabric.Place {
	if f.placer == nil {
		return fabric.Place{}
	}
	return f.placer.Place(p, n)
}

// Close implements fabric.Fabric.
func (f *Fabric) Close(ctx context.Context) error {
	var errs [2]error
	var both sync.WaitGroup
	for i, part := range f.parts() {
		both.Go(func() { errs[i] = part.Close(ctx) })
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

// parts returns the fabrics that there are.
func (f *Fabric) parts() (parts []fabric.Messenger) {
	for _, part := range []fabric.Messenger{f.near, f.far} {
		if part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}
