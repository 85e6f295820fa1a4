package engine

import (
	"slices"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Record is a call of an engine: one under way, or one of the last.
type Record struct {
	abi.Call
	Began   time.Time // zero while it's queued
	Done    bool
	Status  abi.Status
	Cycles  uint64     // when it's done
	Members []abi.Rank // of its communicator; nil if it has none
	Waits   *Wait      // what it waits for, if it does
}

// Wait is what a call waits for.
type Wait struct {
	Kind    abi.MsgType
	Rank    int    // in the call's communicator; negative: any that hasn't been heard of
	Segment uint32 // of an eager message: its number among all of the rank
	Since   time.Time
}

// kept is how many calls that are done an engine remembers.
const kept = 256

// remember keeps a call that is done. The engine's lock is held.
func (e *Engine) remember(c *Call) {
	r := c.record()
	r.Done, r.Status, r.Cycles = true, c.status, c.cycles
	if len(e.last) < kept {
		e.last = append(e.last, r)
		return
	}
	e.last[e.oldest] = r
	e.oldest = (e.oldest + 1) % kept
}

// record is what is known of a call that is under way, but for what it waits for.
func (c *Call) record() Record {
	r := Record{Call: c.words, Began: c.began}
	if c.comm != nil {
		r.Members = c.comm.Ranks
	}
	return r
}

// Records returns the engine's last calls, and then those that are under way, in the order in which they began.
func (e *Engine) Records() []Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := append(slices.Clone(e.last[e.oldest:]), e.last[:e.oldest]...)
	done := len(all)
	e.inbox.mu.Lock()
	defer e.inbox.mu.Unlock()
	for c := range e.calls {
		r := c.record()
		if slices.Contains(e.inbox.waiters, &c.waiter) {
			w := &c.waiter
			r.Waits = &Wait{Kind: w.kind, Rank: w.src, Segment: w.seq, Since: w.since}
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all[done:], func(a, b Record) int { return a.Began.Compare(b.Began) })
	return all
}

// instruction is a move as the hardware's data mover would get it.
func (c *Call) instruction(m *move) abi.Move {
	slot := func(o operand) (s abi.Slot) {
		s.Compressed, s.Host = o.compressed, o.host
		switch o.opcode {
		case opStream:
			s.Opcode = abi.MoveStream
		case opImmediate, opWrite:
			s.Opcode, s.Addr = abi.MoveImmediate, o.addr
		case opOnRecv:
			s.Opcode, s.Src, s.Tag = abi.MoveOnRecv, uint32(o.rank), o.tag
		case opRemote:
			s.Opcode = abi.MoveImmediate
		}
		return s
	}
	i := abi.Move{Op0: slot(m.op0), Op1: slot(m.op1), Res: slot(m.res), Count: uint32(m.count),
		Remote: m.res.opcode == opRemote || m.res.opcode == opWrite, Rendezvous: m.res.opcode == opWrite,
		ArithConfig: c.ArithConfig / 4, Tag: m.res.tag, Function: uint8(c.Function)}
	if !i.Remote && m.res.opcode != opStream {
		i.Tag = 0
	}
	if c.comm != nil && (i.Remote || m.op1.opcode == opOnRecv) {
		i.Comm = c.comm.base / 4
	}
	if i.Remote {
		i.Dst = uint32(m.res.rank)
	}
	return i
}
