package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/chorus-comms/chorus/fabric"
)

// Two processes also hold a socket, for what is rare: descriptors, control
// payloads, goodbyes, and the news of a death. One packet is one frame: a byte for its
// kind, then fields of fixed size, little-endian, then bytes up to the end.

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

func (k frameKind) carriesDescriptor() bool {
	return k == frameHello || k == frameHave || k == frameOffer
}

const tokenBytes = 16

// frame is a parsed packet. Which fields count depends on the kind.
type frame struct {
	kind    frameKind
	payload []byte // control; text of none and refuse; aliases the packet
	id      uint64
	size    int64
	color   int
	comm    uint32
	members uint64 // hash of the ranks of a Space
	stage   int64
	hello   hello
}

type hello struct {
	rank, world uint32
	locals      uint32
	probeAddr   uint64
	probe       uint64
}

// helloMagic also tells versions apart.
const helloMagic = 0x32306d68734f4843

// maxPacket holds every frame.
const maxPacket = fabric.MaxControl + 64

type encoder []byte

func encode(k frameKind) encoder         { return encoder{byte(k)} }
func (e encoder) u32(v uint32) encoder   { return binary.LittleEndian.AppendUint32(e, v) }
func (e encoder) u64(v uint64) encoder   { return binary.LittleEndian.AppendUint64(e, v) }
func (e encoder) bytes(b []byte) encoder { return append(e, b...) }

func encodeHello(h hello, size, color int) []byte {
	return encode(frameHello).u64(helloMagic).u32(h.rank).u32(h.world).u32(h.locals).
		u64(h.probeAddr).u64(h.probe).u64(uint64(size)).u32(uint32(color))
}

func encodeControl(payload []byte) []byte { return encode(frameControl).bytes(payload) }
func encodeWant(id uint64) []byte         { return encode(frameWant).u64(id) }
func encodeEnded(id uint64) []byte        { return encode(frameEnded).u64(id) }
func encodeGoodbye() []byte               { return encode(frameGoodbye) }

func encodeHave(id uint64, size, color int) []byte {
	return encode(frameHave).u64(id).u64(uint64(size)).u32(uint32(color))
}

func encodeOffer(comm uint32, members uint64, stage, size, color int) []byte {
	return encode(frameOffer).u32(comm).u64(members).u64(uint64(stage)).u64(uint64(size)).u32(uint32(color))
}

func encodeNone(id uint64, why string) []byte {
	return encode(frameNone).u64(id).bytes([]byte(why[:min(len(why), 1024)]))
}

func encodeRefuse(comm uint32, why string) []byte {
	return encode(frameRefuse).u32(comm).bytes([]byte(why[:min(len(why), 1024)]))
}

// decoder reads fields; what is missing reads as zero and leaves short set.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if len(d.b) < n {
		d.short = true
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

// decodeFrame parses a packet that came with the given number of descriptors.
func decodeFrame(b []byte, descriptors int) (frame, error) {
	if len(b) == 0 {
		return frame{}, fmt.Errorf("an empty packet")
	}
	f := frame{kind: frameKind(b[0])}
	if f.kind == 0 || f.kind >= frameEnd {
		return f, fmt.Errorf("a packet of kind %d", b[0])
	}
	want := 0
	if f.kind.carriesDescriptor() {
		want = 1
	}
	if descriptors != want {
		return f, fmt.Errorf("a packet of kind %d with %d descriptors", b[0], descriptors)
	}
	d := decoder{b: b[1:]}
	var magic, size, stage uint64
	switch f.kind {
	case frameHello:
		magic = d.u64()
		f.hello.rank, f.hello.world, f.hello.locals = d.u32(), d.u32(), d.u32()
		f.hello.probeAddr, f.hello.probe = d.u64(), d.u64()
		size, f.color = d.u64(), int(d.u32())
	case frameControl:
		f.payload, d.b = d.b, nil
		if len(f.payload) > fabric.MaxControl {
			return f, fmt.Errorf("a control payload of %d bytes", len(f.payload))
		}
	case frameWant, frameEnded:
		f.id = d.u64()
	case frameNone:
		f.id = d.u64()
		f.payload, d.b = d.b, nil
	case frameHave:
		f.id, size, f.color = d.u64(), d.u64(), int(d.u32())
	case frameOffer:
		f.comm, f.members, stage, size, f.color = d.u32(), d.u64(), d.u64(), d.u64(), int(d.u32())
	case frameRefuse:
		f.comm = d.u32()
		f.payload, d.b = d.b, nil
	}
	if d.short || len(d.b) > 0 {
		return f, fmt.Errorf("a packet of kind %d with %d bytes", b[0], len(b))
	}
	if f.kind == frameHello && magic != helloMagic {
		return f, fmt.Errorf("a greeting of another protocol or version")
	}
	if size > maxMessage || stage > maxMessage || (want == 1 && size == 0) {
		return f, fmt.Errorf("a segment of %d bytes", size)
	}
	f.size, f.stage = int64(size), int64(stage)
	return f, nil
}
