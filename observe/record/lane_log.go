package record

import (
	"unsafe"

	"github.com/chorus-comms/chorus/internal/sys"
)

// laneLog records the collectives that the owner of the communicator's lane runs, one after the other. It's made for
// one that repeats: the fields that an operation has in common with the one before it, which may be all but its time,
// are described once. A count tells how many are over and succeeded. So a repeated operation writes a time and the
// counts.
//
// The owner writes a record and then counts it in next. There is one record more than are kept, so that it never writes
// to one that readers count among the last.
type laneLog struct {
	// The end of an operation touches one cache line, the first. A large operation has evicted all from the nearest
	// cache. Recording its begin overlaps with the wait for the peers' flags, but nothing hides the cost of recording
	// its end.
	next uint64 // operations begun
	done uint64 // the last that is over
	seq  uint64 // of the last collective, the lane's owner's or not
	// The name of the current description's algorithm, by its address, as plans keep their names, and its length; -1 if
	// it's not known yet.
	nameAt  *byte
	nameLen int32
	at      uint32  // where the last record is
	size    uint32  // how many there are
	kernels bool    // the clock is the kernel's: steady would take a cache line more
	timed   bool    // the ends of operations of the current description are to be timed
	site    uint16  // the current description's
	shift   uint64  // the current description's
	first   *record // of the records

	path  path
	moves uint64 // of the path, when the current description was made

	trail         trail
	what, in, out uint64 // the current description's
	result        uint64
	since         uint64 // the operation that it was made for
	bytes         uint64 // of all operations before that one
	described     uint64 // descriptions so far; the last one is the current

	records      []record
	names        *[16]named // of algorithms, by address
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
	ended  uint64 // ticks, if that was timed; else less than issued, as of the operation that had the record before
}

// description is what operations that follow each other have in common. Its result, which is known last, may be added
// later.
type description struct {
	since   uint64 // the first of them
	shift   uint64 // from an operation's number in the lane to its sequence number
	what    uint64 // as in a cell
	in, out uint64 // elements
	result  uint64 // status; the index of the algorithm << 8
	bytes   uint64 // of all operations before the first
	callers [frames]uint64
}

// path is from where the last operation was called, as its trail says, in less than a cache line, to be compared with
// where the next one is called from.
type path struct {
	base    uintptr        // the first frame pointer; 0 if there are no others
	offsets [frames]uint32 // of the others, from the first
	returns [frames]uint32 // the lower halves of the return addresses: a program's functions lie within 4 GiB
	moves   uint64         // how often the trail has changed
}

// trail is the frame pointers from the recorder's caller on, and the return addresses in these frames but the first. If
// there are fewer, the rest of the addresses are zero.
type trail struct {
	frames  [frames + 1]uintptr
	callers [frames]uintptr
}

// follow makes the path that of the trail.
func (p *path) follow(t *trail) {
	p.base = t.frames[0]
	for i := range p.offsets {
		switch {
		case t.callers[i] != 0:
			p.offsets[i], p.returns[i] = uint32(t.frames[i+1]-p.base), uint32(t.callers[i])
		case i == 0:
			p.base = 0
		default:
			p.offsets[i], p.returns[i] = p.offsets[i-1], p.returns[i-1]
		}
	}
}

func newLaneLog(entries int) laneLog {
	l := laneLog{records: make([]record, entries+1), descriptions: make([]description, entries+1), names: new([16]named),
		size: uint32(entries + 1), kernels: !steady}
	l.first = &l.records[0]
	return l
}

// repeats reports whether the next operation, which was called from where the path says, is as the current description
// has it.
func (l *laneLog) repeats(what, in, out uint64, site uint16) bool {
	return l.path.moves == l.moves && what == l.what && in == l.in && out == l.out && l.seq-l.next == l.shift &&
		site == l.site
}

// begin records an operation of the current description.
func (l *laneLog) begin(tick uint64) uint64 {
	at := l.at + 1
	if at == l.size {
		at = 0
	}
	l.at = at
	id := l.next + 1
	sys.StoreRelaxed(&l.record(at).issued, tick)
	sys.StoreRelaxed(&l.next, id)
	return id
}

// record returns a record. To find it by the slice would take a cache line more.
func (l *laneLog) record(at uint32) *record {
	return (*record)(unsafe.Add(unsafe.Pointer(l.first), uintptr(at)*unsafe.Sizeof(record{})))
}

// change makes a description of the next operation. Its sequence number will be the next one, unless it's refused.
func (l *laneLog) change(what, in, out uint64, site uint16) {
	id := l.next + 1
	l.site = site
	l.path.follow(&l.trail)
	l.count(id)
	l.what, l.in, l.out, l.moves = what, in, out, l.path.moves
	l.timed = what&flagAsync != 0 || in+out >= timedElements
	l.result, l.shift = uint64(Done), l.seq-l.next
	l.nameAt, l.nameLen = nil, -1
	l.describe()
}

// count takes note of the bytes of all operations before id, which the next description is of.
func (l *laneLog) count(id uint64) {
	l.bytes += (id - l.since) * bytesOf(l.what, l.in, l.out)
	l.since = id
}

// describe makes the current description. An operation makes one at most, so that none is replaced to which a record
// among the last refers.
func (l *laneLog) describe() {
	number := l.described + 1
	d := l.numbered(number)
	sys.StoreRelaxed(&d.since, l.since)
	sys.StoreRelaxed(&d.shift, l.shift)
	sys.StoreRelaxed(&d.what, l.what)
	sys.StoreRelaxed(&d.in, l.in)
	sys.StoreRelaxed(&d.out, l.out)
	sys.StoreRelaxed(&d.result, l.result)
	sys.StoreRelaxed(&d.bytes, l.bytes)
	callers := l.trail.callers
	if l.site != 0 {
		callers = [frames]uintptr{uintptr(l.site)}
	}
	for i, pc := range callers {
		sys.StoreRelaxed(&d.callers[i], uint64(pc))
	}
	sys.StoreRelaxed(&l.described, number)
}

// named returns where the index of a name is kept, whose own it may not be. Names of constants lie close to each other:
// all bits of the address count.
func (l *laneLog) named(name string) *named {
	return &l.names[uint64(uintptr(unsafe.Pointer(unsafe.StringData(name))))*0x9e3779b97f4a7c15>>60]
}

// expects reports whether the last operation, which is over, has the number and the algorithm that its description
// says.
func (l *laneLog) expects(seq uint64, name string) bool {
	return seq == l.seq+1 && len(name) == int(l.nameLen) && unsafe.StringData(name) == l.nameAt
}

// end records the end of operation id, the last one. The name is the algorithm's.
func (l *laneLog) end(id, seq uint64, name string, algorithm uint64, status Status, tick uint64) {
	if result, shift := uint64(status)|algorithm<<8, seq-id; result != l.result || shift != l.shift {
		l.result, l.shift = result, shift
		if d := l.numbered(l.described); id == l.since {
			sys.StoreRelaxed(&d.result, result)
			sys.StoreRelaxed(&d.shift, shift)
		} else {
			l.count(id)
			l.describe()
		}
	}
	if l.nameAt, l.nameLen = unsafe.StringData(name), int32(len(name)); status != Done {
		l.moves = l.path.moves - 1 // the next one's is another
	}
	if tick != 0 {
		sys.StoreRelaxed(&l.record(l.at).ended, tick)
	}
	sys.StoreRelaxed(&l.done, id)
}

// load returns an operation, unless it's none of the last; done is what the lane counted as such before.
func (l *laneLog) load(id, done uint64) (s cell, ok bool) {
	x := &l.records[id%uint64(len(l.records))]
	s.issued = load(&x.issued)
	s.started = s.issued
	d := l.of(id)
	s.what, s.in, s.out = load(&d.what), load(&d.in), load(&d.out)
	s.seq = id + load(&d.shift)
	for i := range d.callers {
		s.callers[i] = uintptr(load(&d.callers[i]))
	}
	if id <= done {
		s.result = load(&d.result)
		if s.ended = load(&x.ended); s.ended < s.issued {
			s.ended = untimed
		}
	}
	return s, l.keeps(id)
}

// keeps reports whether an operation is one of the last: what was read of it before is true.
func (l *laneLog) keeps(id uint64) bool {
	return load(&l.next)+1-id < uint64(len(l.records))
}

// numbered returns where a description is.
func (l *laneLog) numbered(number uint64) *description {
	return &l.descriptions[number%uint64(len(l.descriptions))]
}

// of returns the description of an operation that is one of the last.
func (l *laneLog) of(id uint64) (d *description) {
	number := load(&l.described)
	for range l.descriptions {
		if d = l.numbered(number); load(&d.since) <= id {
			break
		}
		number--
	}
	return d
}

// total returns the bytes of all operations.
func (l *laneLog) total() uint64 {
	for {
		id := load(&l.next)
		if id == 0 {
			return 0
		}
		d := l.of(id)
		each := bytesOf(load(&d.what), load(&d.in), load(&d.out))
		sum := load(&d.bytes) + (id+1-load(&d.since))*each
		if l.keeps(id) {
			return sum
		}
	}
}
