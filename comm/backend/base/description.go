package base

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/plan"
)

// Description is what a fabric.Desc of a collective holds besides what its request says. Ranks compare descriptions
// before they exchange data:
//
//	0 operation, 1 dtype, 2 reduction, 3 purpose, 4..7 root, 8..15 count,
//	16..23 hash of uneven counts (where all ranks know them), 24..27 hash of the hints, 28..31 what
//	came before, if it has a fabric.Desc.Link
//
// Of a gather or scatter only the root knows all counts, which must be equal. If they aren't, 16..19 is the first rank
// whose count isn't the root's own, and 20..23 is that count: no other rank's description has that, so that all fail.
type Description struct {
	Kind    backend.Kind
	DType   dtype.DType
	Reduce  backend.ReduceKind
	Purpose Purpose
}

// Fill writes the description of a request. hints is a hash of those that the ranks must have in common, or 0.
func (k Description) Fill(d *fabric.Desc, q *plan.Request, hints uint64) {
	*d = fabric.Desc{}
	d[0], d[1], d[3] = byte(k.Kind), byte(k.DType), byte(k.Purpose)
	row := k.Kind.Operation()
	if row.Reduces {
		d[2] = byte(k.Reduce)
	}
	if row.Root {
		binary.LittleEndian.PutUint32(d[4:], uint32(q.Root))
	}
	binary.LittleEndian.PutUint64(d[8:], uint64(q.Count))
	switch {
	case row.Root && q.Counts != nil:
		odd := slices.IndexFunc(q.Counts, func(n int) bool { return n != q.Count })
		binary.LittleEndian.PutUint32(d[16:], uint32(odd))
		binary.LittleEndian.PutUint32(d[20:], uint32(min(q.Counts[odd], math.MaxUint32)))
	case q.Counts != nil:
		binary.LittleEndian.PutUint64(d[16:], wire.HashInts(q.Counts))
	}
	binary.LittleEndian.PutUint32(d[24:], uint32(hints^hints>>32))
}

// Purpose is what a collective of the communicator's own is for; 0 for those of the program.
type Purpose uint8

// The purposes. They travel between ranks.
const (
	ForSplit Purpose = iota + 1
	ForNewWindow
	ForCloseWindow
)

var purposes = [...]string{"", "split", "new_window", "close_window"}

func (p Purpose) String() string {
	if int(p) < len(purposes) {
		return purposes[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

// Name names what a description is of, such as "all_reduce" or "split".
func Name(d *fabric.Desc) string {
	if d[3] != 0 {
		return Purpose(d[3]).String()
	}
	return backend.Kind(d[0]).String()
}

// Words says what a description holds. The zero Desc is that of an operation long ago, which needed no message.
func Words(d *fabric.Desc) string {
	if *d == (fabric.Desc{}) {
		return "another operation"
	}
	var b strings.Builder
	kind := backend.Kind(d[0])
	b.WriteString(Name(d))
	if kind == backend.Barrier || d[3] != 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "(%v", dtype.DType(d[1]))
	uneven := binary.LittleEndian.Uint64(d[16:])
	if n := binary.LittleEndian.Uint64(d[8:]); n > 0 || uneven == 0 {
		fmt.Fprintf(&b, "[%d]", n)
	}
	if d[2] != 0 {
		fmt.Fprintf(&b, ", %v", backend.ReduceKind(d[2]))
	}
	rooted := kind.Operation().Root
	if rooted {
		fmt.Fprintf(&b, ", root %d", int32(binary.LittleEndian.Uint32(d[4:])))
	}
	switch {
	case rooted && uneven != 0:
		fmt.Fprintf(&b, ", [%d] for rank %d", binary.LittleEndian.Uint32(d[20:]), binary.LittleEndian.Uint32(d[16:]))
	case uneven != 0:
		fmt.Fprintf(&b, ", sizes #%08x", uint32(uneven))
	}
	if h := binary.LittleEndian.Uint32(d[24:]); h != 0 {
		fmt.Fprintf(&b, ", hints #%08x", h)
	}
	b.WriteString(")")
	return b.String()
}

// Disagreement states both sides of an operation that this rank and a peer take for different ones.
func (l *Life) Disagreement(peer int, mine, theirs *fabric.Desc, seq uint64) *backend.MismatchError {
	at := l.In(Name(mine))
	if *mine == (fabric.Desc{}) {
		at = l.In(Name(theirs))
	}
	at.Seq = seq
	e := MismatchOf(at, peer, Words(mine), Words(theirs))
	if mine.Same(theirs) {
		e.OpB += fmt.Sprintf(", and something else before it than rank %d", e.RankA)
	}
	return e
}

// UnequalBlocks is the error of ranks that agree about everything but how much one sends the other: in an uneven
// all-to-all only these two know.
func (j *Job) UnequalBlocks(at backend.Where, peer int, e *fabric.TruncatedError) *backend.MismatchError {
	side := func(verb string, bytes int) string {
		if bytes%j.Elem == 0 {
			return fmt.Sprintf("%s(%s %v[%d] of a block)", at.Op, verb, j.DType, bytes/j.Elem)
		}
		return fmt.Sprintf("%s(%s %d bytes of a block)", at.Op, verb, bytes)
	}
	return MismatchOf(at, peer, side("expects", e.Capacity), side("sends", e.Sent))
}

// MismatchOf states what two ranks take an operation for, in the order of the ranks.
func MismatchOf(at backend.Where, peer int, mine, theirs string) *backend.MismatchError {
	if peer < at.Reporter {
		return &backend.MismatchError{Where: at, RankA: peer, RankB: at.Reporter, OpA: theirs, OpB: mine}
	}
	return &backend.MismatchError{Where: at, RankA: at.Reporter, RankB: peer, OpA: mine, OpB: theirs}
}
