package observe

import (
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/internal/publish"
)

// lane records the collectives that the owner of the communicator's lane runs, one after the other. It's made for one that
// repeats: what an operation has in common with the one before it, which may be all but its time, is described once, and that
// it's over and has gone well, as most have, is told by a count. So a repeated operation writes half a cache line and the counts.
//
// The owner writes a record and then counts it in next. Since there is one record more than are kept, it never writes to one
// that readers count among the last.
type lane struct {
	// The end of an operation needs one cache line, the first: a large one has driven all out of the nearest cache, and while
	// its beginning is recorded as the others' word is on its way, nothing hides its end.
	next uint64 // operations begun
	done uint64 // the last that is over
	seq  uint64 // of the last collective, whoever ran it
	// The name of the current description's algorithm, by its address, as plans keep their names, and its length; -1 if it's not known yet.
	nameAt  *byte
	nameLen int
	last    *record // of the last operation
	bytes   uint64  // of all operations
	each    uint64  // bytes of an operation of the current description

	what      uint64 // the current description's
	in, out   uint64
	algorithm uint64
	moves     uint64 // of the path, when the current description was made
	since     uint64 // the operation that it was made for
	described uint64 // descriptions so far; the last one is the current
	at        uint32 // where the next record goes
	about     uint32 // where the current description is

	path         path
	records      []record
	names        *[8]named // of algorithms, by address
	descriptions []description
}

// named is the index of a name that doesn't move, as those of plans don't.
type named struct {
	at    *byte
	len   int
	index uint64
}

// record is an operation of the lane's owner.
type record struct {
	issued uint64 // ticks
	seq    uint64
	ended  uint64 // ticks, or untimed; 0 until it's over, and if it has gone well and wasn't timed until it's overwritten
	result uint64 // status, which counts once it's over; the number of the description << 8
}

// description is what operations that follow each other have in common. Its algorithm, which is known last, may be added later.
type description struct {
	what      uint64 // as in a slot
	in, out   uint64 // elements
	algorithm uint64 // index
	callers   [frames]uint64
}

// path is from where the last operation was called: the frame pointers from the recorder's caller on, and the return addresses
// in these frames but the first, ended by a zero if there are fewer.
type path struct {
	frames  [frames + 1]uintptr
	callers [frames]uintptr
	moves   uint64 // how often it has changed
}

func newLane(entries int) lane {
	return lane{at: 1, records: make([]record, entries+1), descriptions: make([]description, entries+1), names: new([8]named)}
}

// begin records an operation, which was called from where the path says.
func (l *lane) begin(tick uint64, what, in, out uint64) uint64 {
	if l.path.moves != l.moves || what != l.what || in != l.in || out != l.out {
		l.what, l.in, l.out, l.algorithm, l.moves = what, in, out, 0, l.path.moves
		l.nameAt, l.nameLen = nil, -1
		l.each = bytesOf(what, in, out)
		l.describe(l.next + 1)
	}
	x := &l.records[l.at]
	if l.at++; int(l.at) == len(l.records) {
		l.at = 0
	}
	id := l.next + 1
	publish.Word(&x.issued, tick)
	publish.Word(&x.seq, l.seq+1) // what it will be, unless it's refused
	publish.Word(&x.ended, 0)
	publish.Word(&x.result, uint64(Done)|l.described<<8)
	l.last = x
	publish.Word(&l.bytes, l.bytes+l.each)
	publish.Word(&l.next, id)
	if what&flagAsync != 0 || in+out >= timedElements {
		id |= timed
	}
	return id
}

// describe makes the current description, from operation id on. An operation makes one at most, so that none is replaced to which a
// record among the last refers.
func (l *lane) describe(id uint64) {
	l.since = id
	l.described++
	if l.about++; int(l.about) == len(l.descriptions) {
		l.about = 0
	}
	d := &l.descriptions[l.about]
	publish.Word(&d.what, l.what)
	publish.Word(&d.in, l.in)
	publish.Word(&d.out, l.out)
	publish.Word(&d.algorithm, l.algorithm)
	for i, pc := range l.path.callers {
		publish.Word(&d.callers[i], uint64(pc))
	}
}

// named returns where the index of a name is kept, whose own it may not be.
func (l *lane) named(name string) *named {
	return &l.names[uintptr(unsafe.Pointer(unsafe.StringData(name)))>>4%uintptr(len(l.names))]
}

// expects reports whether an operation that is over has the number and the algorithm that its record says it will have.
func (l *lane) expects(seq uint64, name string) bool {
	return seq == l.seq+1 && len(name) == l.nameLen && unsafe.StringData(name) == l.nameAt
}

// end records the end of operation id, the last one. The name is the algorithm's.
func (l *lane) end(id, seq uint64, name string, algorithm uint64, status Status, tick uint64) {
	x := l.last
	if algorithm != l.algorithm {
		l.algorithm = algorithm
		if id == l.since {
			publish.Word(&l.descriptions[l.about].algorithm, algorithm)
		} else {
			l.describe(id)
		}
	}
	l.nameAt, l.nameLen = unsafe.StringData(name), len(name)
	if seq != x.seq {
		publish.Word(&x.seq, seq)
	}
	publish.Word(&x.result, uint64(status)|l.described<<8)
	if status != Done || tick != 0 {
		publish.Word(&x.ended, max(tick, untimed))
	}
	publish.Word(&l.done, id)
}

// load returns an operation, unless it's none of the last; done is what the lane counted as such before.
func (l *lane) load(id, done uint64) (s slot, ok bool) {
	x := &l.records[id%uint64(len(l.records))]
	s.issued, s.seq, s.ended, s.result = atomic.LoadUint64(&x.issued), atomic.LoadUint64(&x.seq), atomic.LoadUint64(&x.ended), atomic.LoadUint64(&x.result)
	s.started = s.issued
	d := &l.descriptions[s.result>>8%uint64(len(l.descriptions))]
	s.what, s.in, s.out = atomic.LoadUint64(&d.what), atomic.LoadUint64(&d.in), atomic.LoadUint64(&d.out)
	for i := range d.callers {
		s.callers[i] = uintptr(atomic.LoadUint64(&d.callers[i]))
	}
	if s.ended == 0 && id <= done {
		s.ended = untimed
	}
	if s.result &= 0xff; s.ended == 0 {
		s.result = 0
	} else {
		s.result |= atomic.LoadUint64(&d.algorithm) << 8
	}
	return s, atomic.LoadUint64(&l.next)+1-id < uint64(len(l.records))
}
