package mpi

import (
	"encoding/binary"

	"github.com/chorus-comms/chorus/fabric"
)

// kind is what a message of MPI says. All of these have tag 0, so that they come in their order. The bytes of announced
// messages have the tag that their receiver has chosen.
type kind byte

const (
	kindEager   kind = iota + 1 // a message with its bytes
	kindAsk                     // the news of a message, whose bytes the receiver is to ask for
	kindGrant                   // to the sender: send message id with this tag
	kindDrop                    // to the sender: nobody wants message id
	kindRetract                 // to the receiver: message id won't come
	kindControl                 // a control payload
	kindGoodbye                 // the last message
)

// header is the head of a message:
//
//	0 kind, 1 class, 4..7 communicator, 8..15 tag, 16..23 length, 24..31 id, 32..63 description
type header struct {
	kind   kind
	key    fabric.Key
	length uint64
	id     uint64 // of an announced message, in its sender's count
	desc   fabric.Desc
}

const (
	headerBytes = 64
	// eagerBytes is the longest message that is sent with its head. Control payloads are no longer either.
	eagerBytes = fabric.MaxControl
)

func (h *header) put(b []byte) {
	b[0], b[1], b[2], b[3] = byte(h.kind), byte(h.key.Class), 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.key.Comm)
	binary.LittleEndian.PutUint64(b[8:], h.key.Tag)
	binary.LittleEndian.PutUint64(b[16:], h.length)
	binary.LittleEndian.PutUint64(b[24:], h.id)
	copy(b[32:headerBytes], h.desc[:])
}

func (h *header) read(b []byte) {
	h.kind = kind(b[0])
	h.key = fabric.Key{Comm: binary.LittleEndian.Uint32(b[4:]), Class: fabric.Class(b[1]),
		Tag: binary.LittleEndian.Uint64(b[8:])}
	h.length, h.id = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	copy(h.desc[:], b[32:headerBytes])
}
