package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/wire"
)

// AnySource, as the Peer of a receive, matches a message from every rank.
const AnySource = -1

// Class keeps kinds of traffic apart that share a communicator.
type Class uint8

// The classes.
const (
	Collective   Class = iota // Tag is the operation's sequence number
	PointToPoint              // Tag is the user's tag
	Internal                  // the communicator's own protocols: split, windows, objects
)

// Key names a stream of messages between two ranks of a communicator.
type Key struct {
	Comm  uint32
	Class Class
	Tag   uint64
}

// Desc is a compact description of the operation that a message belongs to.
// The fabric carries it and compares it, without knowing what it says.
type Desc [32]byte

// linked is where a description says what came before, in four bytes that are 0 without a Link.
const linked = 28

// Link has a description say also what its rank has described before, which past condenses, and adds it to that. So two
// ranks that disagreed about an operation in which neither sent the other a message disagree about all later ones.
func (d *Desc) Link(past *uint64) {
	h := *past
	binary.LittleEndian.PutUint32(d[linked:], uint32(h^h>>32))
	for i := 0; i < len(d); i += 8 {
		h = wire.HashAdd(h, binary.LittleEndian.Uint64(d[i:]))
	}
	*past = h
}

// Same reports whether two descriptions are of the same operation, whatever came before.
func (d *Desc) Same(other *Desc) bool {
	return [linked]byte(d[:linked]) == [linked]byte(other[:linked])
}

// Msg is one posted send or receive. The poster owns it and may reuse it after
// it's done; the fabric owns it in between.
type Msg struct {
	Peer int // destination, or source; AnySource only in a Recv
	Key  Key
	Desc Desc
	Buf  unsafe.Pointer
	Len  int // bytes to send, or capacity to receive

	// Results, valid once Done.
	N    int   // bytes moved
	From int   // the sender of a received message
	Sent Desc  // the description that a received message carried
	Err  error // nil, or why the message failed

	done   atomic.Uint32
	waiter *Waiter

	// Of package transport: Order places the message among all posts and arrivals of its rank; Source is whose message
	// it has matched.
	Order  uint64
	Source int
	// Scratch of the fabric while the message is posted.
	Priv  [4]uint64
	PrivP any
}

// Reset makes m ready to be posted again; w, if not nil, is woken when it's done.
func (m *Msg) Reset(w *Waiter) {
	m.done.Store(0)
	m.waiter = w
	m.N, m.From, m.Err = 0, 0, nil
	m.PrivP = nil
	m.Priv = [4]uint64{}
}

// Done reports whether the message has completed.
func (m *Msg) Done() bool { return m.done.Load() != 0 }

// Complete ends the message and wakes its waiter. Fabrics call it, once per post.
func (m *Msg) Complete(n, from int, err error) {
	w := m.waiter
	m.N, m.From, m.Err = n, from, err
	m.done.Store(1) // from here on the poster may reuse m
	if w != nil {
		w.Wake()
	}
}

// Bytes returns the message's buffer.
func (m *Msg) Bytes() []byte {
	if m.Len == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(m.Buf), m.Len)
}

// Errors that messages complete with.
var (
	ErrClosed   = errors.New("fabric: closed")
	ErrCanceled = errors.New("fabric: message canceled")
	// ErrLeft is the cause in the *PeerError of a message for, or from, a peer that has closed its fabric.
	ErrLeft = errors.New("it has closed its end")
	// ErrClosing is within the cause of a peer that takes no calls any more: it has died, or closed its fabric, in
	// which case the reason may be on its way.
	ErrClosing = errors.New("it takes no calls any more")
)

// PeerError reports that a peer is lost: it died, its link broke, or (ErrLeft) it has closed. With ErrNoTransport it's
// only out of this process's reach.
type PeerError struct {
	Peer int
	Err  error
}

func (e *PeerError) Error() string {
	if errors.Is(e.Err, ErrNoTransport) {
		return fmt.Sprintf("rank %d: %v", e.Peer, e.Err)
	}
	return fmt.Sprintf("rank %d is lost: %v", e.Peer, e.Err)
}
func (e *PeerError) Unwrap() error { return e.Err }

// ErrNoTransport is within the cause of a peer that this process can't make a link to. The peer may be there.
var ErrNoTransport = errors.New("this process can't make a link to it")

// Exhausted reports whether an error about a link, or about a peer's memory, is this process's own fault: it has no
// descriptors or no memory left.
func Exhausted(err error) bool { return sys.OutOfDescriptors(err) }

// UnableError reports that a peer, which is there, can't do its part for a link or for shared memory, as it has said
// itself: it has no descriptors or no memory left, as a rule.
type UnableError struct {
	Peer   int
	Reason string // in the peer's words
}

func (e *UnableError) Error() string {
	return fmt.Sprintf("rank %d can't take part: %s", e.Peer, e.Reason)
}

// AbsentError reports that a fabric can't be opened, for it found no link to some ranks.
type AbsentError struct {
	Peers []int
	Err   error // why this rank has given up
}

func (e *AbsentError) Error() string {
	return fmt.Sprintf("no link to %s of this host: %v", wire.NamedRanks(e.Peers), e.Err)
}
func (e *AbsentError) Unwrap() error { return e.Err }

// TruncatedError reports that a message was longer than the receive that it matched.
type TruncatedError struct {
	Peer           int
	Sent, Capacity int // bytes
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d is longer than the %d bytes posted to receive it", e.Sent, e.Peer,
		e.Capacity)
}

// MismatchError reports that a message belongs to another operation than the receive that it matched.
type MismatchError struct {
	Peer          int
	Seq           uint64 // the operation, if it isn't the one under way
	Local, Remote Desc
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("rank %d is in another operation under the same sequence number", e.Peer)
}
