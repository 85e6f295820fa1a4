package accl

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// link is the messages between the ranks, as a fabric: each rank has a stream, of its number, to the kernel of every
// other one, and puts its messages there, one after the other.
type link struct {
	transport.Base
	driver  *accl.Driver
	engine  *engine.Engine
	network engine.Network
	leave   func(cause error) // it
	staged  bool              // tensors are copied to the engine's memory and back
	count   atomic.Uint64     // collectives of the engine
	heard   atomic.Bool       // this rank's hello to itself has come

	peers    []peer
	controls controls
	buffers  transport.Buffers

	mu    sync.Mutex
	comms map[uint32]*accl.Communicator // that have had a collective
}

// maxWorld is how many streams there are.
const maxWorld = abi.MaxStream + 1

// peer is another rank.
type peer struct {
	mu  sync.Mutex   // one message at a time goes to it
	out *accl.Buffer // headers and small messages, on their way

	in      *incoming // the message that comes from it, once its header is there
	head    [headSize]byte
	arrived int // bytes of the header, or the message
}

// incoming is a message that has come, or is coming.
type incoming struct {
	transport.Arrival
	link *link
	kind byte
	body []byte
}

// The header of a message in a stream: kind, class, communicator, tag, bytes, description.
const (
	headSize = 64
	descAt   = 24

	ofMessage = 0
	ofControl = 1
	goodbye   = 2
	hello     = 3 // to itself, when it begins
)

// small is how many bytes of a message go with its header.
const small = 4096

func newLink(rank, size int) *link {
	return &link{Base: transport.NewBase(Name, rank, size, transport.NewMatcher(size), small),
		peers: make([]peer, size), comms: map[uint32]*accl.Communicator{}}
}

// Send implements fabric.Fabric. The message is with the other rank when it returns: streams hold what comes.
func (l *link) Send(m *fabric.Msg) {
	switch {
	case !l.Has(m.Peer):
		m.Complete(0, m.Peer, l.NoRank(m.Peer))
		return
	case m.Peer == l.Rank():
		m.PrivP = l // marks a send, for Cancel
		l.SendTo(l.Match, m)
		return
	}
	n := m.Len
	err := l.Match.LostError(m.Peer)
	if err == nil {
		err = l.put(m.Peer, ofMessage, m.Key, &m.Desc, m.Bytes())
	}
	if err != nil {
		n = 0
	}
	m.Complete(n, m.Peer, err)
}

// put puts a message into this rank's stream to a peer.
func (l *link) put(to int, kind byte, key fabric.Key, desc *fabric.Desc, body []byte) error {
	p := &l.peers[to]
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Closed() && kind == ofMessage {
		return fabric.ErrClosed
	}
	if p.out == nil {
		var err error
		if p.out, err = l.driver.Buffer(headSize+small, abi.Int8); err != nil {
			return err
		}
	}
	head := p.out.Bytes()
	head[0], head[1] = kind, byte(key.Class)
	le := binary.LittleEndian
	le.PutUint32(head[4:], key.Comm)
	le.PutUint64(head[8:], key.Tag)
	le.PutUint64(head[16:], uint64(len(body)))
	copy(head[descAt:], desc[:])
	n := headSize
	if len(body) <= small {
		n += copy(head[headSize:], body)
		body = nil
	}
	err := l.streamPut(p.out, n, to)
	for err == nil && len(body) > 0 {
		part := body[:min(len(body), maxPut)]
		body = body[len(part):]
		var b *accl.Buffer
		if b, err = l.driver.Wrap(part, abi.Int8, accl.HostOnly()); err == nil {
			err = errors.Join(l.streamPut(b, len(part), to), b.Free())
		}
	}
	if err != nil {
		if lost := l.Match.LostError(to); lost != nil {
			return lost
		}
		if errors.Is(err, wire.ErrGone) { // this rank's own
			return err
		}
		return &fabric.PeerError{Peer: to, Err: err}
	}
	return nil
}

// maxPut is how many bytes a call puts.
const maxPut = 1 << 30

func (l *link) streamPut(b *accl.Buffer, n, to int) error {
	return l.driver.StreamPut(context.Background(), b, n, to, uint32(l.Rank()))
}

// arrive takes what a rank has put into its stream here.
func (l *link) arrive(stream uint32, data []byte) {
	if int(stream) >= len(l.peers) {
		return
	}
	p := &l.peers[stream]
	for len(data) > 0 {
		if p.in == nil {
			n := copy(p.head[p.arrived:], data)
			data = data[n:]
			if p.arrived += n; p.arrived == headSize {
				p.arrived = 0
				l.begin(p, int(stream))
			}
			continue
		}
		n := copy(p.in.body[p.arrived:], data)
		data = data[n:]
		if p.arrived += n; p.arrived == len(p.in.body) {
			p.arrived = 0
			l.end(p)
		}
	}
}

// begin reads the header of a message.
func (l *link) begin(p *peer, from int) {
	le, head := binary.LittleEndian, &p.head
	in := &incoming{link: l, kind: head[0]}
	in.From, in.Len = from, int(le.Uint64(head[16:]))
	in.Key = fabric.Key{Comm: le.Uint32(head[4:]), Class: fabric.Class(head[1]), Tag: le.Uint64(head[8:])}
	in.Desc = fabric.Desc(head[descAt : descAt+len(in.Desc)])
	in.Via = in
	if p.in = in; in.Len == 0 {
		l.end(p)
		return
	}
	in.body = l.buffers.Get(in.Len)
}

// end hands on a message that is there.
func (l *link) end(p *peer) {
	in := p.in
	p.in = nil
	switch in.kind {
	case ofControl:
		l.Hand(in.From, in.body)
		l.buffers.Put(in.body)
	case goodbye:
		l.Match.Left(in.From)
	case hello:
		l.heard.Store(true)
	default:
		l.Match.Arrive(&in.Arrival)
	}
}

// Fetch implements transport.Fetcher.
func (in *incoming) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	n, from, l := in.Len, in.From, in.link
	var err error
	if m != nil {
		if n > m.Len {
			err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
			n = 0
		} else {
			copy(m.Bytes(), in.body)
		}
	}
	l.buffers.Put(in.body)
	in.body = nil
	if m != nil {
		m.Complete(n, from, err)
	}
}

// Wait implements fabric.Fabric.
func (l *link) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	for i := 0; i < turns && !m.Done(); i++ {
		runtime.Gosched()
	}
	return transport.Wait(m, w)
}

// turns are how often a wait lets others run before it sleeps: as long as a rank is behind another one that has had as
// much to do.
const turns = 200

// Cancel implements fabric.Fabric. Sends to others are never under way.
func (l *link) Cancel(m *fabric.Msg) {
	if m.Done() {
		return
	}
	if m.PrivP != nil {
		l.Own.Cancel(l.Match, m, fabric.ErrCanceled)
	} else {
		l.Match.Withdraw(m, fabric.ErrCanceled)
	}
	transport.AwaitDone(m, 0)
}

// Control implements fabric.Messenger.
func (l *link) Control(to int, payload []byte) error {
	if err := l.Addressed(to, payload); err != nil {
		return err
	}
	if to == l.Rank() {
		l.Hand(to, payload)
		return nil
	}
	if err := l.Match.LostError(to); err != nil {
		return err
	}
	l.controls.put(l, to, slices.Clone(payload))
	return nil
}

// controls are control payloads on their way. A goroutine puts them into the streams, since their sender must not
// wait: it may be handling the arrival of a message whose own sender waits for that to end.
type controls struct {
	mu      sync.Mutex
	letters []queuedControl
	busy    chan struct{} // closed when the goroutine ends; nil without one
}

type queuedControl struct {
	to   int
	body []byte
}

func (x *controls) put(l *link, to int, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.letters = append(x.letters, queuedControl{to, body})
	if x.busy == nil {
		x.busy = make(chan struct{})
		go x.send(l)
	}
}

func (x *controls) send(l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.letters) > 0 {
		first := x.letters[0]
		x.letters = x.letters[1:]
		x.mu.Unlock()
		l.put(first.to, ofControl, fabric.Key{}, &fabric.Desc{}, first.body) // a rank that is gone needs none
		x.mu.Lock()
	}
	close(x.busy)
	x.busy = nil
}

// drain waits until none is on its way.
func (x *controls) drain() {
	x.mu.Lock()
	busy := x.busy
	x.mu.Unlock()
	if busy != nil {
		<-busy
	}
}

// Forget implements fabric.Announcer.
func (l *link) Forget(comm uint32) {
	l.mu.Lock()
	c := l.comms[comm]
	delete(l.comms, comm)
	l.mu.Unlock()
	if c != nil {
		c.Free()
	}
	l.Base.Forget(comm)
}

// Close implements fabric.Fabric.
func (l *link) Close(context.Context) error {
	if !l.Shut() {
		return nil
	}
	l.controls.drain()
	for r := range l.Size() {
		if r != l.Rank() && l.Match.LostError(r) == nil {
			l.put(r, goodbye, fabric.Key{}, &fabric.Desc{}, nil) // who can't be reached needs none
		}
	}
	l.Drop()
	l.leave(fabric.ErrLeft)
	return l.driver.Close()
}

// bytesAt returns the memory of a tensor.
func bytesAt(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }
