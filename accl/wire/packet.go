package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/chorus-comms/chorus/accl/abi"
)

// The layouts of packets, by protocol:
//
//   - UDP, TCP: a header and as much of the payload as fits; packets that go on have no header. UDP pads the last one
//     to whole words.
//   - RDMA: a request and as much of what it sends as fits: SEND has a header and a payload, WRITE data alone.
const (
	maxPacket   = 4096 // bytes; with RDMA behind the request
	word        = 64   // bytes; also of a header and a request
	opcodeWrite = 1
	opcodeSend  = 2
)

// packets returns a message in packets of a protocol.
func packets(p abi.Protocol, h *abi.Header, payload []byte) [][]byte {
	whole := make([]byte, abi.HeaderSize, abi.HeaderSize+len(payload)+word)
	h.Put(whole)
	whole = append(whole, payload...)
	switch p {
	case abi.RDMA:
		return requests(opcodeSend, h.Addr, h.Host, h.Dst, whole)
	case abi.UDP:
		for len(whole)%word != 0 {
			whole = append(whole, 0)
		}
	}
	var out [][]byte
	for len(whole) > 0 {
		n := min(maxPacket, len(whole))
		out = append(out, whole[:n])
		whole = whole[n:]
	}
	return out
}

// writes returns data that goes straight into an engine's memory, in packets of RDMA.
func writes(addr uint64, host bool, session uint16, data []byte) [][]byte {
	return requests(opcodeWrite, addr, host, session, data)
}

func requests(opcode byte, addr uint64, host bool, session uint16, data []byte) (out [][]byte) {
	for len(data) > 0 {
		n := min(maxPacket, len(data))
		b := make([]byte, word, word+n)
		le := binary.LittleEndian
		le.PutUint64(b, addr)
		le.PutUint32(b[8:], uint32(len(data)))
		if host {
			b[12] = 1
		}
		le.PutUint16(b[13:], session)
		b[15] = opcode
		out = append(out, append(b, data[:n]...))
		data = data[n:]
		if opcode == opcodeWrite {
			addr += uint64(n)
		}
	}
	return out
}

// assembler puts the packets of one sender together.
type assembler struct {
	protocol abi.Protocol
	header   abi.Header
	body     []byte
	missing  int // bytes of the body; of a SEND, of header and body
	under    bool
}

// arrival is what a packet completes.
type arrival struct {
	message *abi.Header // nil: data for memory, or nothing yet
	write   bool
	addr    uint64
	host    bool
	data    []byte
}

// maxMessage bounds what a header may announce.
const maxMessage = 1 << 30

// take takes the sender's next packet. After an error the packet is dropped, and what it belonged to.
func (a *assembler) take(b []byte) (arrival, error) {
	if a.protocol != abi.RDMA {
		return a.bytes(b)
	}
	if len(b) < word {
		a.under = false
		return arrival{}, fmt.Errorf("a packet of %d bytes; a request has %d", len(b), word)
	}
	le := binary.LittleEndian
	switch length, opcode, data := int(le.Uint32(b[8:])), b[15], b[word:]; {
	case opcode == opcodeWrite && len(data) <= length:
		return arrival{write: true, addr: le.Uint64(b), host: b[12] != 0, data: data}, nil
	case opcode == opcodeSend && len(data) <= length:
		return a.bytes(data)
	default:
		a.under = false
		return arrival{}, fmt.Errorf("request %d of %d bytes with %d", opcode, length, len(data))
	}
}

// bytes takes more of a header and its payload.
func (a *assembler) bytes(b []byte) (arrival, error) {
	if !a.under {
		h, err := abi.ParseHeader(b)
		if err != nil {
			return arrival{}, err
		}
		a.header, a.body, a.missing = h, nil, 0
		if h.MsgType == abi.Eager {
			if h.Count > maxMessage {
				return arrival{}, fmt.Errorf("a message of %d bytes", h.Count)
			}
			a.missing = int(h.Count)
		}
		a.under = true
		b = b[abi.HeaderSize:]
	}
	n := min(a.missing, len(b)) // the rest is padding
	a.body = append(a.body, b[:n]...)
	if a.missing -= n; a.missing > 0 {
		return arrival{}, nil
	}
	a.under = false
	h := a.header
	return arrival{message: &h, data: a.body}, nil
}
