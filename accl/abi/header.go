package abi

import (
	"encoding/binary"
	"fmt"
)

// MsgType is what a message is.
type MsgType uint8

// The types of message.
const (
	Eager             MsgType = iota
	RendezvousData            // without a header on the wire
	RendezvousAddress         // where a rank's data may be written
	RendezvousDone            // it has been
)

// Header is what comes before a message on the wire.
type Header struct {
	Count   uint32 // bytes of this segment; in a RendezvousAddress elements
	Tag     uint32
	Src     uint32 // rank in the communicator
	Seq     uint32
	Stream  uint32 // 0: memory; else StreamBase more than the stream's id
	Dst     uint16 // session
	MsgType MsgType
	Host    bool // Addr is in the host's memory
	Addr    uint64
	// Fields of Chorus's engines alone; 0 in messages of other engines, which match any.
	CommID   uint32
	Scenario Scenario
}

// HeaderSize is the length of a header in bytes.
const HeaderSize = 64

// StreamBase is how much more than its id a stream is in a header.
const StreamBase = 9

// Put writes the header into b, which has HeaderSize bytes.
func (h *Header) Put(b []byte) {
	b = b[:HeaderSize]
	clear(b)
	le := binary.LittleEndian
	le.PutUint32(b, h.Count)
	le.PutUint32(b[4:], h.Tag)
	le.PutUint32(b[8:], h.Src)
	le.PutUint32(b[12:], h.Seq)
	le.PutUint32(b[16:], h.Stream)
	le.PutUint16(b[20:], h.Dst)
	b[22] = byte(h.MsgType)
	if h.Host {
		b[23] = 1
	}
	le.PutUint64(b[24:], h.Addr)
	le.PutUint32(b[32:], h.CommID)
	b[36] = byte(h.Scenario)
}

// ParseHeader returns the header that b begins with.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderSize {
		return h, fmt.Errorf("a header of %d bytes; it has %d", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	h = Header{Count: le.Uint32(b), Tag: le.Uint32(b[4:]), Src: le.Uint32(b[8:]), Seq: le.Uint32(b[12:]),
		Stream: le.Uint32(b[16:]), Dst: le.Uint16(b[20:]), MsgType: MsgType(b[22]), Host: b[23] != 0,
		Addr: le.Uint64(b[24:]), CommID: le.Uint32(b[32:]), Scenario: Scenario(b[36])}
	if h.MsgType > RendezvousDone {
		return h, fmt.Errorf("a message of type %d", h.MsgType)
	}
	return h, nil
}
