package myfabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/kern"
)

// A frame is a header and a payload. The header, little-endian:
//
//	0 kind, 1 class, 2..3 zero, 4..7 communicator, 8..15 tag, 16..23 bytes of payload,
//	24..31 number that the receipt names, or 0; 32..63 description
const headerBytes = 64

const (
	frameMessage = iota + 1
	frameReceipt // of a large message: it was received
	frameGoodbye
)

// buffered is up to which size a send is done once it's written. A larger one is done when it was received, so that a
// sender that waits doesn't run ahead.
const buffered = 64 << 10

// maxMessage bounds what a peer can make this rank allocate at once.
const maxMessage = 1 << 32

// link is this rank's end of what it has with one peer. Frames are written to out
// and read from in: one connection, but for the link to oneself.
type link struct {
	f    *Fabric
	peer int
	out  net.Conn
	in   net.Conn

	mu       sync.Mutex
	work     sync.Cond
	waiting  transport.Queue[*fabric.Msg] // sends
	writing  *fabric.Msg
	sent     map[uint64]*fabric.Msg // large ones that no receipt has come for, by number, which is their Priv[0]
	numbered uint64
	receipts []uint64 // to be written, and spare to take its place meanwhile
	spare    []uint64
	ending   bool
	bye      bool
	gone     bool // the peer will say no more

	readDone  chan struct{}
	writeDone chan struct{}
}

// post queues a send. It reports false if the link is about to end.
func (l *link) post(m *fabric.Msg) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return false
	}
	m.PrivP = l
	l.waiting.Push(m)
	l.work.Signal()
	return true
}

// cancel withdraws a send, unless it's being written. One that is with the peer already is done.
func (l *link) cancel(m *fabric.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Remove(m) {
		m.Complete(0, m.Peer, fabric.ErrCanceled)
	} else if l.writing != m && l.forget(m) {
		m.Complete(m.Len, m.Peer, nil)
	}
}

// forget removes a send from those that wait for a receipt. The caller holds the lock.
func (l *link) forget(m *fabric.Msg) bool {
	if l.sent[m.Priv[0]] != m {
		return false
	}
	delete(l.sent, m.Priv[0])
	return true
}

// received completes the send that a receipt names.
func (l *link) received(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.sent[number]; m != nil {
		l.forget(m)
		m.Complete(m.Len, m.Peer, nil)
	}
}

// receipt queues the receipt of a large message.
func (l *link) receipt(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receipts = append(l.receipts, number)
	l.work.Signal()
}

// fail completes what waits for receipts that won't come.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, m := range l.sent {
		if m != l.writing { // the writer fails that one itself
			l.forget(m)
			m.Complete(0, m.Peer, err)
		}
	}
}

// end makes the writer say goodbye, if bye, and close. Sends that wait fail.
func (l *link) end(bye bool) {
	l.mu.Lock()
	if l.ending {
		l.mu.Unlock()
		return
	}
	l.ending, l.bye = true, bye
	waiting := l.waiting
	l.waiting = transport.Queue[*fabric.Msg]{}
	l.work.Signal()
	l.mu.Unlock()
	for !waiting.Empty() {
		m := waiting.Pop()
		m.Complete(0, m.Peer, fabric.ErrClosed)
	}
}

// write is the goroutine that sends.
func (l *link) write() {
	defer close(l.writeDone)
	defer l.out.Close()
	var header [headerBytes]byte
	for {
		l.mu.Lock()
		for l.waiting.Empty() && len(l.receipts) == 0 && !l.ending {
			l.work.Wait()
		}
		switch {
		case len(l.receipts) > 0:
			numbers := l.receipts
			l.receipts, l.spare = l.spare[:0], numbers
			l.mu.Unlock()
			for _, n := range numbers {
				fill(&header, frameReceipt, fabric.Key{}, &fabric.Desc{}, 0, n)
				l.put(header[:], nil)
			}
		case !l.waiting.Empty():
			l.writeMessage(&header) // unlocks
		default:
			l.mu.Unlock()
			if l.bye {
				fill(&header, frameGoodbye, fabric.Key{}, &fabric.Desc{}, 0, 0)
				l.put(header[:], nil)
			}
			return
		}
	}
}

// writeMessage writes the first send that waits. From the moment at which its
// last byte is written a receipt may complete a large one.
func (l *link) writeMessage(header *[headerBytes]byte) {
	m := l.waiting.Pop()
	l.writing = m
	large, number := m.Len > buffered, uint64(0)
	if large {
		l.numbered++
		number = l.numbered
		m.Priv[0] = number
		l.sent[number] = m
	}
	l.mu.Unlock()
	fill(header, frameMessage, m.Key, &m.Desc, m.Len, number)
	ok := l.put(header[:], m.Bytes())
	var err error
	if !ok {
		err = l.why()
	}
	l.mu.Lock()
	l.writing = nil
	mine := !large
	if large && (!ok || l.gone) {
		if mine = l.forget(m); mine && err == nil {
			err = l.reason()
		}
	}
	l.mu.Unlock()
	if mine {
		n := m.Len
		if err != nil {
			n = 0
		}
		m.Complete(n, m.Peer, err)
	}
}

func fill(h *[headerBytes]byte, kind byte, k fabric.Key, d *fabric.Desc, n int, number uint64) {
	h[0], h[1] = kind, byte(k.Class)
	binary.LittleEndian.PutUint32(h[4:], k.Comm)
	binary.LittleEndian.PutUint64(h[8:], k.Tag)
	binary.LittleEndian.PutUint64(h[16:], uint64(n))
	binary.LittleEndian.PutUint64(h[24:], number)
	copy(h[32:], d[:])
}

func (l *link) put(header, payload []byte) bool {
	_, err := l.out.Write(header)
	if err == nil && len(payload) > 0 { // the peer may have read an empty message and left
		_, err = l.out.Write(payload)
	}
	return err == nil
}

// why waits until the reader knows what became of the peer, as it's sure to once writing fails.
func (l *link) why() error {
	<-l.readDone
	return l.reason()
}

func (l *link) reason() error {
	if err := l.f.Match.LostError(l.peer); err != nil && !l.f.Closed() {
		return err
	}
	return fabric.ErrClosed
}

// read is the goroutine that receives: it takes all that comes, at once.
func (l *link) read() {
	defer func() {
		l.in.Close()
		l.fail(l.reason())
		close(l.readDone)
	}()
	f := l.f
	var header [headerBytes]byte
	for {
		if _, err := io.ReadFull(l.in, header[:]); err != nil {
			l.lost(err)
			return
		}
		n := binary.LittleEndian.Uint64(header[16:])
		switch kind := header[0]; {
		case kind == frameGoodbye && n == 0:
			if !f.Closed() { // else it's perhaps this rank's own, to itself
				f.Match.Left(l.peer)
			}
			return
		case kind == frameReceipt && n == 0:
			l.received(binary.LittleEndian.Uint64(header[24:]))
		case kind == frameMessage && n <= maxMessage && header[1] <= byte(fabric.Internal):
			p := f.take(int(n))
			if _, err := io.ReadFull(l.in, p.data); err != nil {
				f.give(p)
				l.lost(err)
				return
			}
			p.From, p.Len = l.peer, int(n)
			p.Key = fabric.Key{Class: fabric.Class(header[1]),
				Comm: binary.LittleEndian.Uint32(header[4:]), Tag: binary.LittleEndian.Uint64(header[8:])}
			copy(p.Desc[:], header[32:])
			p.number = binary.LittleEndian.Uint64(header[24:])
			f.Match.Arrive(&p.Arrival)
		default:
			l.lost(fmt.Errorf("it sent a frame of kind %d with %d bytes", kind, n))
			return
		}
	}
}

func (l *link) lost(err error) {
	if l.f.Closed() {
		return // this rank's own doing
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("its connection ended without a goodbye")
	}
	l.f.Match.Lost(l.peer, err)
}

// parcel is a message that has come and waits for its receive.
type parcel struct {
	transport.Arrival
	f    *Fabric
	data []byte

	number uint64 // for the receipt; 0 if none is asked for
}

// Fetch implements transport.Fetcher.
func (p *parcel) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	n, from := p.Len, p.From
	var err error
	switch {
	case m == nil:
	case n > m.Len:
		err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
		n = 0
	case n > 0:
		kern.Copy(m.Buf, unsafe.Pointer(&p.data[0]), n)
	}
	if p.number != 0 {
		p.f.links[from].receipt(p.number)
	}
	p.f.give(p)
	if m != nil {
		m.Complete(n, from, err)
	}
}
