package links

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/fabric"
)

// Network is one engine's links to the others.
type Network struct {
	fab   fabric.Fabric
	own   *engine.Engine
	peers []peer
	free  sync.Pool     // *sender
	stop  *fabric.Abort // ends what waits
	tasks sync.WaitGroup
	host  host
}

var _ engine.Network = (*Network)(nil)

// peer is another engine.
type peer struct {
	mu sync.Mutex // a head and its body follow each other
}

// sender is a message on its way: a header with what fits behind it, and the rest.
type sender struct {
	head, body fabric.Msg
	waiter     *fabric.Waiter
	buf        [abi.HeaderSize + inline]byte
}

// inline is how many bytes go with the header.
const inline = 4096

// key is what the messages between engines come under.
var key = fabric.Key{Comm: 1, Class: fabric.Internal}

// New returns a network over a fabric, which is the network's until Close.
func New(fab fabric.Fabric) *Network {
	n := &Network{fab: fab, peers: make([]peer, fab.Size()), stop: fabric.NewAbort()}
	n.free.New = func() any { return &sender{waiter: fabric.NewWaiter(n.stop)} }
	return n
}

// Serve gives the engine what the others send; it comes before its first call. lost hears of each peer that is gone,
// with the cause, which is fabric.ErrLeft if it has closed its network.
func (n *Network) Serve(e *engine.Engine, lost func(session uint32, cause error)) {
	n.own = e
	for r := range n.peers {
		if r != n.fab.Rank() {
			n.tasks.Go(func() {
				err := n.receive(e, r)
				if p := (*fabric.PeerError)(nil); errors.As(err, &p) {
					err = p.Err
				}
				if !n.stop.Raised() {
					lost(uint32(r), err)
				}
			})
		}
	}
}

// Close ends the links, with a goodbye to the peers.
func (n *Network) Close(ctx context.Context) error {
	n.stop.Raise(fabric.ErrClosed)
	n.tasks.Wait()
	return errors.Join(n.host.close(), n.fab.Close(ctx))
}

// Send implements engine.Network.
func (n *Network) Send(session uint32, h *abi.Header, payload []byte) error {
	switch {
	case int64(session) >= int64(len(n.peers)):
		return fmt.Errorf("no engine has session %d", session)
	case int(session) == n.fab.Rank() && h.MsgType == abi.RendezvousData:
		return n.own.Memory.Write(h.Addr, h.Host, payload).Err()
	case int(session) == n.fab.Rank():
		n.own.Receive(session, h, payload)
		return nil
	}
	s := n.free.Get().(*sender)
	s.waiter.Begin(nil, 0)
	h.Put(s.buf[:])
	behind := copy(s.buf[abi.HeaderSize:], payload)
	whole := behind == len(payload)
	if !whole {
		behind = 0
	}
	p := &n.peers[session]
	p.mu.Lock()
	n.post(&s.head, s.waiter, int(session), s.buf[:abi.HeaderSize+behind])
	if !whole {
		n.post(&s.body, s.waiter, int(session), payload)
	}
	p.mu.Unlock()
	err := n.complete(&s.head, s.waiter)
	if !whole {
		err = errors.Join(err, n.complete(&s.body, s.waiter))
	}
	s.body.Buf = nil
	n.free.Put(s)
	return err
}

func (n *Network) post(m *fabric.Msg, w *fabric.Waiter, to int, b []byte) {
	m.Reset(w)
	m.Peer, m.Key, m.Buf, m.Len = to, key, unsafe.Pointer(unsafe.SliceData(b)), len(b)
	n.fab.Send(m)
}

// complete waits until the fabric is through with a message.
func (n *Network) complete(m *fabric.Msg, w *fabric.Waiter) error {
	err := n.fab.Wait(m, w)
	if !m.Done() {
		n.fab.Cancel(m)
	}
	return err
}

// Write implements engine.Network.
func (n *Network) Write(session uint32, addr uint64, host bool, data []byte) error {
	for len(data) > 0 {
		part := data[:min(len(data), maxWrite)]
		h := abi.Header{MsgType: abi.RendezvousData, Count: uint32(len(part)), Host: host, Addr: addr}
		if err := n.Send(session, &h, part); err != nil {
			return err
		}
		data = data[len(part):]
		addr += uint64(len(part))
	}
	return nil
}

// maxWrite is how many bytes go in one message.
const maxWrite = 1 << 30

// receive takes what a peer sends, until it's gone or this network is closed.
func (n *Network) receive(e *engine.Engine, from int) error {
	var m fabric.Msg
	w := fabric.NewWaiter(n.stop)
	w.Policy = fabric.BlockPolicy
	head := make([]byte, abi.HeaderSize+inline)
	var scratch []byte
	get := func(b []byte) (int, error) {
		m.Reset(w)
		w.Begin(nil, 0)
		m.Peer, m.Key, m.Buf, m.Len = from, key, unsafe.Pointer(unsafe.SliceData(b)), len(b)
		n.fab.Recv(&m)
		if err := n.complete(&m, w); err != nil {
			return 0, err
		}
		return m.N, nil
	}
	for {
		got, err := get(head)
		if err != nil {
			return err
		}
		h, err := abi.ParseHeader(head[:got])
		if err != nil {
			return err
		}
		payload := head[abi.HeaderSize:got]
		rest := 0 // bytes that come by themselves
		if h.MsgType <= abi.RendezvousData && len(payload) == 0 {
			rest = int(h.Count)
		}
		if h.MsgType != abi.RendezvousData {
			if rest > 0 {
				if cap(scratch) < rest {
					scratch = engine.Alloc(rest)
				}
				payload = scratch[:rest]
				if got, err = get(payload); err != nil {
					return err
				}
				payload = payload[:got]
			}
			e.Receive(uint32(from), &h, payload)
			continue
		}
		into, release := e.Memory.Pin(h.Addr, int(h.Count), h.Host)
		switch {
		case rest == 0:
			copy(into, payload)
		case into != nil:
			_, err = get(into)
		default: // the call that wanted it is no more
			_, err = get(engine.Alloc(rest))
		}
		if release(); err != nil {
			return err
		}
	}
}
