package ucx

import (
	"encoding/binary"
	"fmt"

	"github.com/chorus-comms/chorus/fabric"
)

// kind is what a frame is for.
type kind uint8

const (
	kindEager   kind = 1 + iota // a message with its bytes
	kindAsk                     // a message, whose bytes wait for a grant
	kindGrant                   // send the bytes of message id, under the tag
	kindDrop                    // message id is not wanted
	kindRetract                 // message id won't come
	kindCredit                  // length more bytes may be sent unasked
	kindControl                 // a control payload
	kindPing                    // the sender is there
	kindGoodbye                 // the last frame but acknowledgements
	kindBye                     // the goodbye has come
	kindUnable                  // the sender can't be linked with the receiver; the payload is the reason
	lastKind    = kindUnable
)

// header begins a frame. On the wire it's little-endian:
//
//	0  key of the sender, for the receiver; never 0
//	8  kind, class, two zeros, rank of the sender
//	16 communicator, length of the payload that follows
//	24 tag
//	32 id of the message
//	40 length of the message
//	48 description
type header struct {
	key     uint64
	kind    kind
	class   fabric.Class
	from    uint32
	comm    uint32
	payload uint32
	tag     uint64
	id      uint64
	length  uint64
	desc    fabric.Desc
}

const headerBytes = 80

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, h.key)
	b[8], b[9], b[10], b[11] = byte(h.kind), byte(h.class), 0, 0
	le.PutUint32(b[12:], h.from)
	le.PutUint32(b[16:], h.comm)
	le.PutUint32(b[20:], h.payload)
	le.PutUint64(b[24:], h.tag)
	le.PutUint64(b[32:], h.id)
	le.PutUint64(b[40:], h.length)
	copy(b[48:], h.desc[:])
}

// maxMessage is the largest message that a peer may announce, in bytes.
const maxMessage = 1 << 46

// parse reads the header of a frame and checks what can be checked without knowing the sender.
func (h *header) parse(frame []byte) error {
	if len(frame) < headerBytes {
		return fmt.Errorf("a frame of %d bytes", len(frame))
	}
	le := binary.LittleEndian
	*h = header{key: le.Uint64(frame), kind: kind(frame[8]), class: fabric.Class(frame[9]), from: le.Uint32(frame[12:]),
		comm: le.Uint32(frame[16:]), payload: le.Uint32(frame[20:]), tag: le.Uint64(frame[24:]), id: le.Uint64(frame[32:]),
		length: le.Uint64(frame[40:])}
	copy(h.desc[:], frame[48:])
	carries := h.kind == kindEager || h.kind == kindControl || h.kind == kindUnable
	switch {
	case h.kind == 0 || h.kind > lastKind || h.class > fabric.Internal:
		return fmt.Errorf("a frame of kind %d and class %d", h.kind, h.class)
	case int(h.payload) != len(frame)-headerBytes || h.payload > 0 && !carries:
		return fmt.Errorf("a frame of kind %d that says %d bytes follow, of which there are %d", h.kind, h.payload,
			len(frame)-headerBytes)
	case carries && h.length != uint64(h.payload):
		return fmt.Errorf("a message of %d bytes with %d", h.length, h.payload)
	case h.kind != kindEager && h.payload > fabric.MaxControl:
		return fmt.Errorf("a control payload of %d bytes", h.payload)
	case h.length > maxMessage:
		return fmt.Errorf("a message of %d bytes", h.length)
	}
	return nil
}

// Tags of UCX's messages: the highest byte says what it is. The rest is 0 in a frame, and drawn by the receiver for the
// bytes of a message.
const (
	tagFrame uint64 = 1 << 56
	tagData  uint64 = 2 << 56
	tagKind  uint64 = 0xff << 56
	tagAll   uint64 = 1<<64 - 1
)
