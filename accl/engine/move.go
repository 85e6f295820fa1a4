package engine

import (
	"math"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// opcode says where an operand of a move comes from, or a result goes.
type opcode uint8

const (
	opNone      opcode = iota
	opStream           // of the kernel
	opImmediate        // memory of this engine
	opOnRecv           // the next messages of a rank; the second operand only
	opRemote           // a rank, by eager messages, or a stream of its kernel; results only
	opWrite            // memory of a rank's engine; results only
)

// operand is one side of a move.
type operand struct {
	opcode     opcode
	compressed bool
	host       bool
	addr       uint64
	rank       int
	tag        uint32 // of messages; the id of a stream
	put        bool   // an opRemote is for the stream of the rank's kernel
}

// move is an instruction of the data mover: up to two operands, combined if they're two, become a result.
type move struct {
	op0, op1, res operand
	count         int // elements
}

// The operands that a call's words name.
func (c *Call) operand(i int, stream abi.StreamFlags, host abi.HostFlags, small abi.CompressionFlags) operand {
	o := operand{opcode: opImmediate, addr: c.Addr[i], host: c.Host&host != 0, compressed: c.Compression&small != 0}
	if c.Stream&stream != 0 {
		o.opcode, o.tag = opStream, c.words.Tag
	}
	return o
}

func (c *Call) op0() operand { return c.operand(0, abi.Op0Stream, abi.Op0Host, abi.Op0Compressed) }
func (c *Call) op1() operand { return c.operand(1, 0, abi.Op1Host, abi.Op1Compressed) }
func (c *Call) res() operand { return c.operand(2, abi.ResStream, abi.ResHost, abi.ResCompressed) }

// to is a rank, as the result of a move; from is the other side.
func (c *Call) to(rank int) operand {
	return operand{opcode: opRemote, rank: rank, tag: c.Tag, compressed: c.Compression&abi.EthCompressed != 0}
}

func (c *Call) from(rank int) operand {
	o := c.to(rank)
	o.opcode = opOnRecv
	return o
}

// plus is the operand so many elements on. A stream goes on by itself.
func (c *Call) plus(o operand, elements int) operand {
	o.addr += uint64(elements * c.path.size(o.compressed))
	return o
}

// segment is how many elements an instruction has of a message between two ranks, a broadcast or an all-reduce: what
// fills an RX buffer, uncompressed even if it goes over the wire compressed.
func (c *Call) segment() int {
	limit := int(c.engine.exch.load(abi.RXBufferSize))
	if limit == 0 {
		return max(1, c.count())
	}
	return max(1, limit/c.path.size(false))
}

// inSegments carries out a move by an instruction for each segment.
func (c *Call) inSegments(m move) {
	step := c.segment()
	for at := 0; at < m.count && c.ok(); at += step {
		c.move(move{op0: c.plus(m.op0, at), op1: m.op1, res: c.plus(m.res, at), count: min(step, m.count-at)})
	}
}

// move carries out an instruction, unless the call has failed.
func (c *Call) move(m move) {
	if told := c.engine.cfg.Moves; told != nil && c.ok() {
		from, i := time.Now(), c.instruction(&m)
		defer func() { told(c.words, i, from, time.Now()) }()
	}
	c.puts = 0
	if m.op1.opcode != opOnRecv {
		c.part(&m, 0, m.count, nil)
		return
	}
	size := c.path.size(m.op1.compressed)
	for at := 0; at < m.count && c.ok(); {
		a := c.next(m.op1.rank, m.op1.tag)
		if a == nil {
			return
		}
		at += c.take(&m, a, at, size)
		c.engine.inbox.release(a)
	}
}

// take moves what a message has brought, and returns how many elements it was.
func (c *Call) take(m *move, a *arrival, at, size int) (n int) {
	b, r, bad := c.engine.inbox.payload(a)
	if r != nil {
		defer r.release()
	}
	switch n = len(b) / size; {
	case bad != 0:
		c.fail(bad)
	case len(b)%size != 0 || n == 0 || n > m.count-at:
		c.fail(abi.DMANotExpectedBTT | abi.SegmenterExpectedBTT)
	default:
		c.part(m, at, n, b)
	}
	return n
}

// part carries out the move for n elements from one on. received is the second operand, of a receive.
func (c *Call) part(m *move, at, n int, received []byte) {
	if !c.ok() || n == 0 {
		return
	}
	var a, b, into []byte
	aSmall, bSmall := m.op0.compressed, m.op1.compressed
	a, done := c.fetch(m.op0, at, n)
	defer done()
	if received != nil {
		b = received
	} else {
		var done func()
		b, done = c.fetch(m.op1, at, n)
		defer done()
	}
	if a == nil {
		a, b, aSmall = b, nil, bSmall
	}
	if m.res.opcode == opImmediate {
		var done func()
		into, done = c.fetch(m.res, at, n)
		defer done()
	}
	if !c.ok() {
		return
	}
	out := c.through(m, a, b, aSmall, bSmall, into, n)
	if !c.ok() {
		return
	}
	switch m.res.opcode {
	case opStream:
		c.engine.out.push(m.res.tag, out)
	case opRemote:
		c.transmit(m.res, out, at+n == m.count)
	case opWrite:
		if err := c.engine.cfg.Network.Write(c.comm.Ranks[m.res.rank].Session, c.plus(m.res, at).addr, m.res.host,
			out); err != nil {
			c.fail(statusOf(err))
		}
	}
}

func nothing() {}

// fetch returns an operand's bytes, until done is called; nil if it has none.
func (c *Call) fetch(o operand, at, n int) (b []byte, done func()) {
	bytes := n * c.path.size(o.compressed)
	switch o.opcode {
	case opImmediate:
		b, r := c.engine.Memory.at(c.plus(o, at).addr, bytes, o.host)
		if r == nil {
			c.fail(abi.DMADecode)
			return nil, nothing
		}
		return b, r.release
	case opStream:
		b = Alloc(bytes)
		if !c.engine.in.pull(b, c.dropped) {
			c.fail(abi.NotReady)
		}
	}
	return b, nothing
}

// transmit sends elements of an instruction to a rank, the last ones or more to come, in messages of the size that the
// rank has buffers for, as all ranks have. The instruction's messages are full but for its last, however its operands
// have come.
func (c *Call) transmit(to operand, data []byte, last bool) {
	most := c.mostOf(to)
	for len(data) > 0 && c.ok() {
		part := data[:min(most-len(c.tail), len(data))]
		data = data[len(part):]
		full := len(c.tail)+len(part) == most || last && len(data) == 0
		if len(c.tail) > 0 || !full {
			c.tail = append(c.tail, part...)
			part = c.tail
		}
		if full {
			c.sendEager(to, part)
			c.tail = c.tail[:0]
		}
	}
}

// mostOf is how many bytes a message to a rank has at most: whole elements.
func (c *Call) mostOf(to operand) int {
	size := c.path.size(to.compressed)
	most := math.MaxInt / size * size
	for _, limit := range [2]uint32{c.comm.Ranks[to.rank].MaxSegmentSize, c.engine.exch.load(abi.RXBufferSize)} {
		if limit != 0 {
			most = min(most, max(int(limit)/size*size, size))
		}
		if to.put { // streams need no RX buffer
			break
		}
	}
	return most
}

// sendEager sends one eager message.
func (c *Call) sendEager(to operand, payload []byte) {
	e, session := c.engine, c.comm.Ranks[to.rank].Session
	at := c.comm.seq(to.rank, abi.OutboundWord)
	h := &c.header
	*h = abi.Header{Count: uint32(len(payload)), Tag: to.tag, Src: uint32(c.me()), Seq: e.exch.load(at),
		Dst: uint16(session), CommID: c.comm.id, Scenario: purpose(c.Scenario)}
	if to.put { // which takes no number
		h.Stream = to.tag + abi.StreamBase
		h.Seq += c.puts
		c.puts++
	} else {
		e.exch.store(at, h.Seq+1)
	}
	if err := e.cfg.Network.Send(session, h, payload); err != nil {
		c.fail(statusOf(err))
	}
}

// statusOf returns what an error of the network is to a call.
func statusOf(err error) abi.Status {
	if s, ok := err.(abi.Status); ok {
		return s
	}
	return abi.PackTimeout
}
