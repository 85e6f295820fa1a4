package record

import (
	"errors"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/tensor"
)

// frames is the number of return addresses kept of each call.
const frames = 5

// cell is an operation in the ring of those that anybody may call: two cache lines of words, stored by sys.StoreRelaxed
// and loaded atomically; and to readers any operation.
type cell struct {
	begun     uint64 // the operation's number; stored before all else
	what      uint64 // kind, dtype, reduction and flags, one byte each; root or peer
	tag       uint64
	seq       uint64
	in, out   uint64 // elements
	issued    uint64 // ticks
	started   uint64
	ended     uint64 // ticks, or untimed
	result    uint64 // status; the algorithm's index << 8; From << 32
	callers   [frames]uintptr
	published uint64 // the operation's number; stored after all else
}

const (
	flagAsync     = 1 << 24
	flagSpecial   = 1 << 25 // no operation of the backend: the kind is a special one
	untimed       = 1       // ended, but the clock wasn't read
	timedElements = 64 << 10
	TimedPeriod   = 8
)

// Special is what a recorder knows besides the operations of the backend.
type Special uint8

// The recorder's events besides operations.
const (
	Split     Special = iota + 1 // the elements in are the ranks of the new communicator
	NewWindow                    // the elements in are the window's
	CloseWindow
	Suspend
	Resume
	RegisterSymmetric // the elements in are the blocks
	DeregisterSymmetric
)

var specialNames = [...]string{"", "split", "new_window", "close_window", "suspend", "resume", "register_symmetric",
	"deregister_symmetric"}

// IsSpecial reports whether an operation of that name is a Special.
func IsSpecial(op string) bool { return slices.Contains(specialNames[1:], op) }

func (s Special) String() string { return specialNames[s] }

// Recorder is the flight recorder of one communicator on one rank. A nil Recorder records nothing.
type Recorder struct {
	own    laneLog // of the collectives of the lane's owner; begins a cache line
	others ring    // of what anybody may call at any time; has cells once it's used, by sharing
	once   sync.Once

	rank    *Rank
	name    string
	me      int
	members []int // ranks of the job, by rank of the communicator
	nth     int   // tells communicators apart that have the same name and members

	engine atomic.Pointer[Engines]
	algos  struct {
		sync.Mutex
		all []string
	}
	cold struct {
		sync.Mutex
		cause   error
		at      time.Time
		refused string
		after   uint64 // what had been recorded by then
		took    *latencies
	}
	_ [8]byte // to a whole number of lines: such sizes begin at one
}

// ring is the last operations of those that anybody may call.
type ring struct {
	next  uint64 // numbers given
	bytes uint64 // of all operations
	cells []cell
}

// An operation's number, as Begin returns it, says also where it is.
const (
	shared = 1 << 63 // in the ring of the others
	timed  = 1 << 62 // of those in it: its end is to be timed; not part of the number
)

func (g *ring) at(id uint64) *cell { return &g.cells[id&uint64(len(g.cells)-1)] }

// claim takes the next cell.
func (r *Recorder) claim() (*cell, uint64) {
	g := r.sharing()
	id := atomic.AddUint64(&g.next, 1) | shared
	return g.at(id), id
}

// sharing returns the ring of the others, which has its memory from now on.
func (r *Recorder) sharing() *ring {
	r.once.Do(func() { r.others.cells = make([]cell, 1<<bits.Len(uint(r.rank.Entries-1))) })
	return &r.others
}

// cellOf returns the cellOf of an operation, or nil if a later one has taken it.
func (r *Recorder) cellOf(id uint64) *cell {
	if id&shared == 0 {
		return nil
	}
	id &^= timed
	s := r.others.at(id)
	if atomic.LoadUint64(&s.begun) != id {
		return nil
	}
	return s
}

// recorded returns the number of operations so far.
func (r *Recorder) recorded() uint64 {
	return load(&r.own.next) + load(&r.others.next)
}

// bytes returns the bytes of the operations so far.
func (r *Recorder) bytes() uint64 {
	return r.own.total() + load(&r.others.bytes)
}

func newRecorder(r *Rank, name string, me int, members []int, entries int) *Recorder {
	return &Recorder{rank: r, name: name, me: me, members: slices.Clone(members), own: newLaneLog(entries)}
}

// Begin records that a collective was called, and is under way; the caller owns the lane. It returns the operation's
// number, which is 0 only without a recorder.
//
// The best moment for the call is after this rank has raised its flag, and before it waits for the peers' flags. Its
// cost, half of which is reading the clock, then overlaps with that wait.
//
//go:noinline
func (r *Recorder) Begin(op *backend.Op, async bool) uint64 {
	if r == nil {
		return 0
	}
	l := &r.own
	tick := mark(&l.path, &l.trail)
	if l.kernels {
		tick = now()
	}
	if what, in, out := summary(op, async); !l.repeats(what, in, out, op.Site) {
		l.change(what, in, out, op.Site)
	}
	return l.begin(tick)
}

// Issue is Begin for what others may call meanwhile: point-to-point operations, and collectives that are queued. Of
// those Start tells when they are under way.
//
//go:noinline
func (r *Recorder) Issue(op *backend.Op, async, queued bool) uint64 {
	if r == nil {
		return 0
	}
	what, in, out := summary(op, async)
	s, id := r.claim()
	sys.StoreRelaxed(&s.begun, id)
	if sample(&s.callers); op.Site != 0 {
		atomic.StoreUintptr(&s.callers[0], uintptr(op.Site))
		atomic.StoreUintptr(&s.callers[1], 0)
	}
	tick := now()
	var started uint64
	if !queued {
		started = tick
	}
	sys.StoreRelaxed(&s.what, what)
	sys.StoreRelaxed(&s.tag, uint64(op.Tag))
	sys.StoreRelaxed(&s.in, in)
	sys.StoreRelaxed(&s.out, out)
	atomic.AddUint64(&r.others.bytes, bytesOf(what, in, out))
	sys.StoreRelaxed(&s.seq, 0)
	sys.StoreRelaxed(&s.issued, tick)
	sys.StoreRelaxed(&s.started, started)
	sys.StoreRelaxed(&s.ended, 0)
	sys.StoreRelaxed(&s.result, 0)
	sys.StoreRelaxed(&s.published, id)
	if what&flagAsync != 0 || in+out >= timedElements || op.Kind.PointToPoint() {
		id |= timed
	}
	return id
}

// summary returns what a cell says of an operation.
func summary(op *backend.Op, async bool) (what, in, out uint64) {
	var dt dtype.DType
	if op.In != nil {
		dt, in = op.In.DType(), uint64(op.In.NumEl())
	}
	if op.Out != nil {
		dt, out = op.Out.DType(), uint64(op.Out.NumEl())
	}
	if len(op.Ins)+len(op.Outs) > 0 {
		dt, in, out = op.First().DType(), in+elements(op.Ins), out+elements(op.Outs)
	}
	where := op.Root
	if op.Kind.PointToPoint() {
		where = op.Peer
	}
	what = uint64(op.Kind) | uint64(dt)<<8 | uint64(op.Reduce.Kind)<<16 | uint64(uint32(int32(where)))<<32
	if async {
		what |= flagAsync
	}
	return what, in, out
}

// bytesOf returns the bytes of a rank's tensors in an operation, of its inputs or outputs, whichever are more.
func bytesOf(what, in, out uint64) uint64 { return max(in, out) * uint64(dtype.DType(what>>8).Size()) }

func elements(list []*tensor.Tensor) uint64 {
	n := 0
	for _, t := range list {
		n += t.NumEl()
	}
	return uint64(n)
}

// Start records that an issued operation is under way: a collective, whose caller owns the lane unless it's on a stream
// of its own, or a message on one.
func (r *Recorder) Start(id uint64, op *backend.Op) {
	s := r.cellOf(id)
	if s == nil {
		return
	}
	if op.Stream != nil {
		sys.StoreRelaxed(&s.seq, op.Seq)
	} else {
		sys.StoreRelaxed(&s.seq, r.own.seq+1)
	}
	sys.StoreRelaxed(&s.started, now())
}

// Done is End of the last collective that Begin began, which went well.
//
// The end of a small synchronous operation is timed only for one in eight, the same ones on every rank: looking at the
// clock would cost more than all else that is recorded.
func (r *Recorder) Done(op *backend.Op) {
	if r == nil {
		return
	}
	l := &r.own
	if !l.expects(op.Seq, op.Algorithm) {
		r.ended(l.next, op, nil)
		return
	}
	l.seq = op.Seq
	if l.timed || op.Seq%TimedPeriod == 0 {
		sys.StoreRelaxed(&l.record(l.at).ended, now())
	}
	sys.StoreRelaxed(&l.done, l.next)
}

// End records that an operation is over. For a collective that is on no stream the caller still owns the lane.
func (r *Recorder) End(id uint64, op *backend.Op, err error) {
	switch {
	case id == 0:
	case id&shared == 0 && err == nil:
		r.Done(op)
	default:
		r.ended(id, op, err)
	}
}

// ended is End where more is to be said than that an operation is over as the one before it was.
func (r *Recorder) ended(id uint64, op *backend.Op, err error) {
	seq := op.Seq
	if !op.Kind.PointToPoint() && op.Stream == nil { // those on streams are in no lane
		if seq == 0 && err == nil { // a backend that doesn't count
			seq = r.own.seq + 1
		}
		if seq != 0 {
			r.own.seq = seq
		}
	}
	toTime := id&timed != 0
	if id&shared == 0 {
		toTime = r.own.timed
	}
	var tick uint64
	if toTime || err != nil || seq%TimedPeriod == 0 {
		tick = now()
	}
	if id&shared == 0 {
		n := r.own.named(op.Algorithm)
		if n.len != len(op.Algorithm) || n.at != unsafe.StringData(op.Algorithm) {
			*n = named{unsafe.StringData(op.Algorithm), len(op.Algorithm), r.index(op.Algorithm)}
		}
		r.own.end(id, seq, op.Algorithm, n.index, statusOf(err), tick)
		return
	}
	s := r.cellOf(id)
	if s == nil {
		return
	}
	result := r.index(op.Algorithm)<<8 | uint64(statusOf(err))
	if op.Kind.PointToPoint() {
		result |= uint64(uint32(int32(op.From))) << 32
	} else {
		sys.StoreRelaxed(&s.seq, seq)
	}
	sys.StoreRelaxed(&s.result, result)
	sys.StoreRelaxed(&s.ended, max(tick, untimed))
}

// index returns the index of an algorithm's name, from 1; 0 means none.
func (r *Recorder) index(name string) uint64 {
	if name == "" {
		return 0
	}
	r.algos.Lock()
	defer r.algos.Unlock()
	i := slices.Index(r.algos.all, name)
	if i < 0 {
		i = len(r.algos.all)
		r.algos.all = append(r.algos.all, name)
	}
	return uint64(i + 1)
}

// BeginSpecial records something that is no operation of the backend, and EndSpecial its end.
func (r *Recorder) BeginSpecial(kind Special, n int) uint64 {
	if r == nil {
		return 0
	}
	s, id := r.claim()
	sys.StoreRelaxed(&s.begun, id)
	sample(&s.callers)
	tick := now()
	sys.StoreRelaxed(&s.what, uint64(kind)|flagSpecial|uint64(1<<32-1)<<32)
	sys.StoreRelaxed(&s.tag, 0)
	sys.StoreRelaxed(&s.seq, 0)
	sys.StoreRelaxed(&s.in, uint64(n))
	sys.StoreRelaxed(&s.out, 0)
	sys.StoreRelaxed(&s.issued, tick)
	sys.StoreRelaxed(&s.started, tick)
	sys.StoreRelaxed(&s.ended, 0)
	sys.StoreRelaxed(&s.result, 0)
	sys.StoreRelaxed(&s.published, id)
	return id
}

// Drop records the end of what BeginSpecial began, or of an operation that never came to be under way.
func (r *Recorder) Drop(id uint64, err error) {
	if s := r.cellOf(id); s != nil {
		sys.StoreRelaxed(&s.result, uint64(statusOf(err)))
		sys.StoreRelaxed(&s.ended, now())
	}
}

// Refused records why a call was refused before it became an operation.
func (r *Recorder) Refused(why error) {
	if r == nil {
		return
	}
	r.cold.Lock()
	r.cold.refused, r.cold.after = why.Error(), r.recorded()
	r.cold.Unlock()
}

// Broken records why the communicator is broken, and writes the rank's dump if it's the first failure of the
// rank and there is a directory for it. Only the first cause counts.
func (r *Recorder) Broken(cause error) { r.failed(learned, cause) }

// Failed is Broken when an operation has returned the failure.
func (r *Recorder) Failed(cause error) { r.failed(returned, cause) }

// Late has the rank dumped when an operation that breaks nothing, such as a receive, has timed out, unless the rank was
// dumped before.
func (r *Recorder) Late() {
	if r != nil {
		r.rank.failed(late)
	}
}

func (r *Recorder) failed(o occasion, cause error) {
	if r == nil || cause == nil || errors.Is(cause, backend.ErrFinalized) {
		return
	}
	r.cold.Lock()
	if r.cold.cause == nil {
		r.cold.cause, r.cold.at = cause, time.Now()
	}
	r.cold.Unlock()
	r.rank.failed(o)
}
