package abi

import "fmt"

// Opcode says where an operand of a move comes from, or where its result goes.
type Opcode uint8

// The opcodes.
const (
	MoveNone      Opcode = iota
	MoveStream           // of the kernel
	MoveImmediate        // an address
	MoveOnRecv           // the next messages of a rank; the second operand alone
	MoveIncrement        // behind where the slot's last move was
	MoveRepeat           // where it was
	MoveStride           // so many elements further
)

var opcodes = [...]string{"none", "stream", "immediate", "on_recv", "increment", "repeat", "stride"}

func (o Opcode) String() string {
	if int(o) < len(opcodes) {
		return opcodes[o]
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// Slot is one of a move's three sides: two operands and a result.
type Slot struct {
	Opcode     Opcode
	Compressed bool
	Host       bool
	Addr       uint64 // of MoveImmediate
	Stride     uint32 // of MoveStride, in elements
	Src, Tag   uint32 // of MoveOnRecv
}

// Move is an instruction of the data mover: up to two operands, combined if they're two, become a result.
type Move struct {
	Op0, Op1, Res Slot
	Remote        bool // the result is for a rank
	Function      uint8
	Rendezvous    bool   // it goes straight into the rank's memory
	Count         uint32 // elements; 0 changes the slots' addresses alone
	ArithConfig   uint32 // word of exchange memory
	Tag           uint32 // of what is sent, or the stream's id
	Comm          uint32 // word of exchange memory
	Dst           uint32 // rank
}

func (m *Move) slots() [3]*Slot { return [3]*Slot{&m.Op0, &m.Op1, &m.Res} }

// The bits of a move's first word, behind three opcodes of three bits each.
const (
	moveRemote     = 9
	moveCompressed = 10 // of three slots
	moveFunction   = 13 // four bits
	moveHost       = 17 // of three slots
	moveRendezvous = 20
	moveBits       = 21
)

// outTagged and commed say which words a move has besides.
func (m *Move) outTagged() bool { return m.Remote || m.Res.Opcode == MoveStream }
func (m *Move) commed() bool    { return m.Remote || m.Op1.Opcode == MoveOnRecv }

// Words returns the move as the firmware hands it to the data mover.
func (m Move) Words() []uint32 {
	bit := func(b bool, at int) uint32 {
		if b {
			return 1 << at
		}
		return 0
	}
	first := bit(m.Remote, moveRemote) | uint32(m.Function&0xf)<<moveFunction | bit(m.Rendezvous, moveRendezvous)
	words := []uint32{0, m.Count, m.ArithConfig}
	for i, s := range m.slots() {
		first |= uint32(s.Opcode&7)<<(3*i) | bit(s.Compressed, moveCompressed+i) | bit(s.Host, moveHost+i)
		switch s.Opcode {
		case MoveImmediate:
			words = append(words, uint32(s.Addr), uint32(s.Addr>>32))
		case MoveStride:
			words = append(words, s.Stride)
		case MoveOnRecv:
			words = append(words, s.Src, s.Tag)
		}
	}
	if m.outTagged() {
		words = append(words, m.Tag)
	}
	if m.commed() {
		words = append(words, m.Comm)
	}
	if m.Remote {
		words = append(words, m.Dst)
	}
	words[0] = first
	return words
}

// ParseMove returns the move that w is.
func ParseMove(w []uint32) (m Move, err error) {
	next := func() (v uint32) {
		if len(w) == 0 {
			err = fmt.Errorf("no move: it ends too early")
			return 0
		}
		v, w = w[0], w[1:]
		return v
	}
	first := next()
	is := func(at int) bool { return first>>at&1 != 0 }
	m.Remote, m.Rendezvous, m.Function = is(moveRemote), is(moveRendezvous), uint8(first>>moveFunction&0xf)
	m.Count, m.ArithConfig = next(), next()
	for i, s := range m.slots() {
		s.Opcode, s.Compressed, s.Host = Opcode(first>>(3*i)&7), is(moveCompressed+i), is(moveHost+i)
		switch {
		case int(s.Opcode) >= len(opcodes), s.Opcode == MoveOnRecv && i != 1:
			return m, fmt.Errorf("no move: operand %d is %v", i, s.Opcode)
		case s.Opcode == MoveImmediate:
			s.Addr = uint64(next()) | uint64(next())<<32
		case s.Opcode == MoveStride:
			s.Stride = next()
		case s.Opcode == MoveOnRecv:
			s.Src, s.Tag = next(), next()
		}
	}
	if m.outTagged() {
		m.Tag = next()
	}
	if m.commed() {
		m.Comm = next()
	}
	if m.Remote {
		m.Dst = next()
	}
	if err == nil && (len(w) > 0 || first>>moveBits != 0) {
		err = fmt.Errorf("no move: %d words are left over", len(w))
	}
	return m, err
}

func (s Slot) string(name string) string {
	if s.Opcode == MoveNone {
		return ""
	}
	t := " " + name + "=" + s.Opcode.String()
	switch s.Opcode {
	case MoveImmediate:
		t += fmt.Sprintf("(%#x)", s.Addr)
	case MoveStride:
		t += fmt.Sprintf("(%d)", s.Stride)
	case MoveOnRecv:
		t += fmt.Sprintf("(rank %d)", s.Src)
	}
	if s.Compressed {
		t += " compressed"
	}
	if s.Host {
		t += " host"
	}
	return t
}

// String says what the move does.
func (m Move) String() string {
	t := fmt.Sprintf("move %d", m.Count) + m.Op0.string("op0") + m.Op1.string("op1") + m.Res.string("res")
	if m.Remote {
		t += fmt.Sprintf(" to rank %d", m.Dst)
	}
	if m.Rendezvous {
		t += " by rendezvous"
	}
	return t
}
