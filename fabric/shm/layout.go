package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
)

// Each rank owns one shared segment, its inbox: a page that says whether it
// sleeps, then one section per peer. Words that different processes write lie in
// different pairs of cache lines, because processors prefetch lines in pairs.

const (
	pageBytes  = 4096
	entryCount = 128 // entries of a ring
	claimCount = 64  // announced messages to one peer that the peer may read by itself
	bodyBytes  = 96
	areaTotal  = 4 << 20 // bytes of payload area per inbox, shared out among the peers
	areaMin    = 64 << 10
	areaMax    = 256 << 10
)

// inboxPage is the first page of an inbox.
type inboxPage struct {
	bell     atomic.Uint32 // changes with each ring
	sleepers atomic.Uint32 // goroutines of the owner asleep on bell
	coreHint sys.CoreHint  // where the owner runs
	_        [112]byte
	probe    uint64 // a random number, read across processes to see whether that is permitted
	_        [120]byte
}

// ringHead begins the part of an inbox that belongs to one peer; the payload area follows it.
type ringHead struct {
	consumed atomic.Uint64 // entries that the owner has taken out
	_        [120]byte
	starved  atomic.Uint32 // the peer found the ring full and wants the bell when there's room
	_        [124]byte
	acks     atomic.Uint64 // messages of the owner that the peer has marked done
	_        [120]byte
	claims   [claimCount]claim // of the owner's messages to the peer
	entries  [entryCount]entry
}

// claim is the state of an announced message that its receiver may read by itself, in its sender's inbox:
// generation<<8 | state.
type claim struct {
	word atomic.Uint64
	_    [56]byte
}

// States of a claim. The sender opens and withdraws, the receiver takes and finishes.
const (
	claimOpen = 1 + iota
	claimTaken
	claimDone
	claimWithdrawn
)

// entry is one message in a ring: two cache lines. Lengths and positions come from
// another process; parse reads each once and checks it.
type entry struct {
	stamp atomic.Uint64 // (position+1)<<16 | kind<<8 | flags, stored last
	comm  uint32
	n     uint32 // bytes of payload in the entry or the area
	tag   uint64
	at    uint64 // where in the area the payload lies
	body  [bodyBytes / 8]uint64
}

var _ [128 - int(unsafe.Sizeof(entry{}))]struct{}
var _ [int(unsafe.Sizeof(entry{})) - 128]struct{}

// Kinds of entries.
const (
	kindWhole = 1 + iota // a message with its payload
	kindReady            // a message whose payload waits in the sender's memory
	kindPull             // "send me the pieces of that message": message, pull
	kindPiece            // the next bytes for a pull: pull
	kindGone             // the message of a pull was withdrawn: pull
	kindDrop             // the message isn't wanted: message
	kindEnd
)

const (
	flagClass = 0x0f // the key's class
	flagDesc  = 0x80 // body begins with a description; otherwise it's all zero
)

const descWords = len(fabric.Desc{}) / 8

// inlineBytes is how much payload an entry has room for.
func inlineBytes(described bool) int {
	if described {
		return bodyBytes - 8*descWords
	}
	return bodyBytes
}

// envelope is a parsed entry.
type envelope struct {
	kind    uint8
	key     fabric.Key
	desc    fabric.Desc
	n       int            // bytes at payload, or of the whole message if kindReady
	payload unsafe.Pointer // in the entry or the area
	id      uint64         // of the message, or of the pull
	pull    uint64         // kindPull
	addr    uint64         // kindReady: where the payload lies in the sender's address space
	place   fabric.Place   // kindReady: and in which segment, if any
}

var errCorrupt = errors.New("its ring is corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errCorrupt, fmt.Sprintf(format, args...))
}

const maxMessage = 1 << 46 // bytes, the largest that a segment or address space could hold

// parse reads an entry whose stamp was seen. Its payload lies in the entry itself or in area.
func (e *entry) parse(stamp uint64, area []byte, v *envelope) error {
	v.kind = uint8(stamp >> 8)
	flags := uint8(stamp)
	if v.kind == 0 || v.kind >= kindEnd {
		return corrupt("entry of kind %d", v.kind)
	}
	v.key = fabric.Key{Comm: e.comm, Class: fabric.Class(flags & flagClass), Tag: e.tag}
	at := 0
	if flags&flagDesc != 0 {
		v.desc = *(*fabric.Desc)(unsafe.Pointer(&e.body))
		at = descWords
	} else {
		v.desc = fabric.Desc{}
	}
	switch v.kind {
	case kindWhole, kindPiece:
		n, pos := uint64(e.n), e.at
		if v.kind == kindPiece {
			v.id = e.tag
		}
		if n <= uint64(bodyBytes-8*at) {
			v.payload = unsafe.Pointer(&e.body)
			v.payload = unsafe.Add(v.payload, 8*at)
		} else if pos > uint64(len(area)) || n > uint64(len(area))-pos {
			return corrupt("payload of %d bytes at %d of %d", n, pos, len(area))
		} else {
			v.payload = unsafe.Pointer(&area[pos])
		}
		v.n = int(n)
	case kindReady:
		b := e.body[descWords:]
		n := b[0]
		v.id, v.addr, v.place = b[1], b[2], fabric.Place{Segment: b[3], Offset: b[4]}
		if n == 0 || n > maxMessage {
			return corrupt("message of %d bytes", n)
		}
		v.n = int(n)
	default:
		v.id, v.pull = e.body[0], e.body[1]
	}
	return nil
}

// shape is the layout of all inboxes of a host; every rank computes the same.
type shape struct {
	locals int // ranks of the host
	area   int // payload bytes of a section
}

func shapeOf(locals int) shape {
	area := areaTotal / max(locals-1, 1)
	area = 1 << (bits.Len(uint(area)) - 1)
	return shape{locals, min(max(area, areaMin), areaMax)}
}

func (s shape) ringBytes() int {
	return (int(unsafe.Sizeof(ringHead{})) + s.area + pageBytes - 1) &^ (pageBytes - 1)
}

// inboxBytes has a section for every rank of the host, the owner's own unused, so
// that a rank's section has the same place in all inboxes.
func (s shape) inboxBytes() int { return s.section(s.locals) }

// section is where the section of the local rank begins in an inbox.
func (s shape) section(local int) int { return pageBytes + local*s.ringBytes() }

// ring returns the ring of the local rank in the inbox at base.
func (s shape) ring(base unsafe.Pointer, local int) (*ringHead, []byte) {
	p := unsafe.Add(base, s.section(local))
	area := unsafe.Slice((*byte)(unsafe.Add(p, unsafe.Sizeof(ringHead{}))), s.area)
	return (*ringHead)(p), area
}

// wholeMax is the longest message that travels with its envelope: copying twice
// costs less than a handshake up to about here.
const wholeMax = 4 << 10

// pieceMax is the longest piece of a message that is staged through the ring.
func (s shape) pieceMax() int { return s.area / 4 }
