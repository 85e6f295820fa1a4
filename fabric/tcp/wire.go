package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/chorus-comms/chorus/fabric"
)

// Everything on the wire is little-endian. A connection starts with a hello, the proof of both ends that they belong to
// the job (package secure), and an answer; then frames follow, a header each, with or without a payload. With TLS, all
// of this is within it.

// kind says what a frame is.
type kind uint8

const (
	// Announcements of a message; they carry key, description, id and length.
	kindEager kind = iota + 1 // payload: the message
	kindPush                  // the message follows in chunks
	kindAsk                   // the message is sent when it's granted

	kindGrant   // to the sender: send message id
	kindDrop    // to the sender: message id isn't wanted; it counts as sent
	kindRetract // to the receiver: message id won't come, or not the rest of it
	kindChunk   // payload: bytes of message id from offset on
	kindCredit  // length more bytes may be sent without asking
	kindControl // payload: for the Handler
	kindPing
	kindGoodbye // the last frame of a connection
	kindEnd
)

// header is a frame without its payload.
type header struct {
	kind    kind
	class   fabric.Class
	comm    uint32
	payload uint32 // bytes that follow
	tag     uint64
	id      uint64 // of a message, counted by its sender
	length  uint64 // of the whole message
	offset  uint64
	desc    fabric.Desc
}

const (
	headerBytes = 80
	headerMagic = 0x4843 // "CH"
	chunkBytes  = 2048 << 10
	maxMessage  = 1 << 62
)

func (h *header) put(b *[headerBytes]byte) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], headerMagic)
	b[2], b[3] = byte(h.kind), byte(h.class)
	le.PutUint32(b[4:], h.comm)
	le.PutUint32(b[8:], h.payload)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], h.tag)
	le.PutUint64(b[24:], h.id)
	le.PutUint64(b[32:], h.length)
	le.PutUint64(b[40:], h.offset)
	copy(b[48:], h.desc[:])
}

// parse reads a header and checks what can be checked without knowing the link:
// that the kind exists and that its numbers fit together.
func (h *header) parse(b *[headerBytes]byte) error {
	le := binary.LittleEndian
	if le.Uint16(b[0:]) != headerMagic || le.Uint32(b[12:]) != 0 {
		return errors.New("not a frame")
	}
	*h = header{kind: kind(b[2]), class: fabric.Class(b[3]), comm: le.Uint32(b[4:]), payload: le.Uint32(b[8:]),
		tag: le.Uint64(b[16:]), id: le.Uint64(b[24:]), length: le.Uint64(b[32:]), offset: le.Uint64(b[40:])}
	copy(h.desc[:], b[48:])
	ok := h.length <= maxMessage && h.offset <= maxMessage
	switch h.kind {
	case kindEager:
		ok = ok && uint64(h.payload) == h.length && h.payload <= maxEager && h.offset == 0
	case kindPush, kindAsk:
		ok = ok && h.payload == 0 && h.offset == 0
	case kindChunk:
		ok = ok && (h.payload > 0 || h.length == 0) && h.payload <= chunkBytes && h.offset+uint64(h.payload) <= h.length
	case kindControl:
		ok = ok && h.payload <= fabric.MaxControl
	case kindGrant, kindDrop, kindRetract, kindCredit, kindPing, kindGoodbye:
		ok = ok && h.payload == 0
	default:
		return fmt.Errorf("frame of unknown kind %d", h.kind)
	}
	if h.class > fabric.Internal {
		ok = false
	}
	if !ok {
		return fmt.Errorf("frame of kind %d with payload %d, length %d, offset %d, class %d", h.kind, h.payload, h.length,
			h.offset, h.class)
	}
	return nil
}

// hello opens a connection. It's believed once the proof has followed, which covers it.
type hello struct {
	from, to, size uint32
	index          uint32 // which of the pair's connections; or that the rank is unable to make one
}

// unable, as the index of a hello, has the error number of what keeps the rank from making the connection. None
// follows.
func unable(err error) uint32 {
	number := syscall.EMFILE
	errors.As(err, &number)
	return unableBase | uint32(number)&0xff
}

const unableBase = 0xffffff00

// unable returns what keeps the sender of the hello from making a connection, if the hello says so.
func (h *hello) unable() (why syscall.Errno, ok bool) {
	return syscall.Errno(h.index & 0xff), h.index >= unableBase && h.index != 1<<32-1
}

const (
	tokenBytes = 16
	helloBytes = 24
	version    = 4
)

var helloMagic = []byte("CHORUST")

func (h *hello) encode() []byte {
	b := make([]byte, 0, helloBytes)
	b = append(append(b, helloMagic...), version)
	for _, v := range []uint32{h.from, h.to, h.size, h.index} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func (h *hello) decode(b []byte) error {
	if len(b) != helloBytes || !bytes.Equal(b[:7], helloMagic) {
		return errors.New("not a hello")
	}
	if b[7] != version {
		return fmt.Errorf("protocol version %d; this is %d", b[7], version)
	}
	le := binary.LittleEndian
	h.from, h.to, h.size, h.index = le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	return nil
}

// answer is the one byte that follows a hello.
type answer byte

const (
	welcome answer = 'W' // frames follow
	tie     answer = 'T' // both ranks dialed; the other's connection counts
	refused answer = 'R'
	wanting answer = 'N' // this rank can't take the connection; a byte with the error number follows
)
