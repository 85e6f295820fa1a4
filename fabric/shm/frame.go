package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/fabric"
)

// Two processes also hold a socket, for what is rare: descriptors, control
// payloads, goodbyes, and the news of a death. One packet is one frame: its fields, little-endian, all of
// them in all packets, and then bytes up to the end.

type frameKind uint8

const (
	frameHello   frameKind = 1 + iota // who I am; with the inbox's descriptor
	frameControl                      // a payload for the Handler
	frameWant                         // please send segment id
	frameHave                         // segment id; with its descriptor
	frameNone                         // there's no segment id, or it can't be given: text
	frameEnded                        // segment id is no more
	frameOffer                        // my part of a Space; with its descriptor
	frameRefuse                       // I can't give my part of a Space: text
	frameGoodbye
	frameEnd
)

const tokenBytes = 16

// fields are what a frame says by number. Which count depends on the kind.
type fields struct {
	Magic   uint64
	Kind    frameKind
	ID      uint64 // of a segment
	Size    int64
	Color   int32
	Comm    uint32
	Members uint64 // hash of the ranks of a Space
	Stage   int64
	Hello   hello
}

type hello struct {
	Rank, World uint32
	Locals      uint32
	ProbeAddr   uint64
	Probe       uint64
}

// frame is a packet.
type frame struct {
	fields
	payload []byte // control; text of none and refuse; of a parsed frame it aliases the packet
}

// magic also tells versions apart.
const magic = 0x34306d68734f4843

// maxPacket holds every frame, and maxText the text of a failure.
const (
	maxPacket = fabric.MaxControl + 128
	maxText   = 1024
)

// encode returns a frame as a packet.
func (f fields) encode(payload []byte) []byte {
	f.Magic = magic
	b, err := binary.Append(make([]byte, 0, 128+len(payload)), binary.LittleEndian, f)
	if err != nil {
		panic(err) // they are of fixed size
	}
	return append(b, payload...)
}

// text is the payload of a frame about a failure.
func text(why string) []byte { return []byte(why[:min(len(why), maxText)]) }

// decodeFrame parses a packet that came with the given number of descriptors.
func decodeFrame(b []byte, descriptors int) (f frame, err error) {
	n, err := binary.Decode(b, binary.LittleEndian, &f.fields)
	if err != nil {
		return f, fmt.Errorf("a packet of %d bytes", len(b))
	}
	f.payload = b[n:]
	allowed, want := 0, 0
	switch f.Kind {
	case frameControl:
		allowed = fabric.MaxControl
	case frameNone, frameRefuse:
		allowed = maxText
	case frameHello, frameHave, frameOffer:
		want = 1
	}
	switch {
	case f.Magic != magic:
		return f, errors.New("a packet of another protocol or version")
	case f.Kind == 0 || f.Kind >= frameEnd:
		return f, fmt.Errorf("a packet of kind %d", f.Kind)
	case descriptors != want:
		return f, fmt.Errorf("a packet of kind %d with %d descriptors", f.Kind, descriptors)
	case len(f.payload) > allowed:
		return f, fmt.Errorf("a packet of kind %d with %d bytes", f.Kind, len(b))
	case f.Size < 0 || f.Size > maxMessage || f.Stage < 0 || f.Stage > maxMessage || want == 1 && f.Size == 0:
		return f, fmt.Errorf("a segment of %d bytes", f.Size)
	}
	return f, nil
}
