package plan

import (
	"slices"
	"sort"
)

// epoch is an access: by a rank, at a value of its own clock.
type epoch struct {
	rank  int32
	clock uint32
}

// run is a value over the elements [lo, hi) of a message.
type run struct {
	lo, hi int
	v      value // its shift counts from the message's elements
}

// histories holds sets of reads. Segments name them by index, which keeps
// pointers out of the many segments that are moved about.
type histories struct{ sets [][]epoch }

// segment is a stretch of memory with one history, from lo to the next one's.
type segment struct {
	lo      int
	v       value
	written epoch
	reads   int32 // since it was written: index into histories, 0 for none
}

// claim is memory that a posted transfer uses until its Wait.
type claim struct {
	lo, hi int
	write  bool
	po     *post
}

// memory is one buffer of one rank.
type memory struct {
	size   int
	segs   []segment
	claims []claim
}

func (m *memory) init(size int, e epoch) {
	m.size = size
	if size > 0 {
		m.segs = []segment{{written: e}}
	}
}

// find returns the index of the segment that holds element at.
func (m *memory) find(at int) int {
	return sort.Search(len(m.segs), func(i int) bool { return m.segs[i].lo > at }) - 1
}

func (m *memory) hi(i int) int {
	if i+1 < len(m.segs) {
		return m.segs[i+1].lo
	}
	return m.size
}

// split makes [lo, hi) whole segments and returns their indices.
func (m *memory) split(lo, hi int) (i, j int) {
	i = m.find(lo)
	if m.segs[i].lo != lo {
		s := m.segs[i]
		s.lo = lo
		i++
		m.segs = slices.Insert(m.segs, i, s)
	}
	for j = i; j < len(m.segs) && m.segs[j].lo < hi; j++ {
	}
	if end := m.hi(j - 1); end > hi {
		s := m.segs[j-1]
		s.lo = hi
		m.segs = slices.Insert(m.segs, j, s)
	}
	return i, j
}

// read appends the runs of [lo, hi).
func (m *memory) read(runs []run, lo, hi int) []run {
	for i := m.find(lo); i < len(m.segs) && m.segs[i].lo < hi; i++ {
		v := m.segs[i].v
		v.shift += lo
		runs = appendRun(runs, run{max(0, m.segs[i].lo-lo), min(hi, m.hi(i)) - lo, v})
	}
	return runs
}

func appendRun(runs []run, r run) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].v == r.v {
		runs[last].hi = r.hi
		return runs
	}
	return append(runs, r)
}

// write replaces what stands from lo on by runs.
func (m *memory) write(lo int, runs []run, e epoch) {
	i, j := m.split(lo, lo+runs[len(runs)-1].hi)
	if extra := len(runs) - (j - i); extra > 0 {
		m.segs = slices.Insert(m.segs, i, make([]segment, extra)...)
	} else {
		m.segs = slices.Delete(m.segs, i, i-extra)
	}
	for k, r := range runs {
		r.v.shift -= lo
		m.segs[i+k] = segment{lo: lo + r.lo, v: r.v, written: e}
	}
}

// set gives [lo, hi) one value.
func (m *memory) set(lo, hi int, v value, e epoch) {
	v.shift += lo
	m.write(lo, []run{{0, hi - lo, v}}, e)
}

// conflict returns an access to [lo, hi) that an access by rank, who has seen
// clock, races with; nil if there is none.
func (m *memory) conflict(h *histories, lo, hi int, write bool, rank int, clock vector) *epoch {
	for i := m.find(lo); i < len(m.segs) && m.segs[i].lo < hi; i++ {
		s := &m.segs[i]
		if int(s.written.rank) != rank && s.written.clock > clock[s.written.rank] {
			return &s.written
		}
		if !write {
			continue
		}
		reads := h.sets[s.reads]
		for k := range reads {
			if e := &reads[k]; int(e.rank) != rank && e.clock > clock[e.rank] {
				return e
			}
		}
	}
	return nil
}

// mark records an access.
func (m *memory) mark(h *histories, lo, hi int, write bool, e epoch, clock vector) {
	i, j := m.split(lo, hi)
	last, marked := int32(-1), int32(0) // neighbours often share a history
	for ; i < j; i++ {
		s := &m.segs[i]
		if write {
			s.written, s.reads = e, 0
			continue
		}
		if s.reads != last {
			last, marked = s.reads, h.add(s.reads, e, clock)
		}
		s.reads = marked
	}
}

// add returns the set that has one more read. A read that happens before this one need not be kept:
// an access that happens after this one happens after both.
func (h *histories) add(set int32, e epoch, clock vector) int32 {
	var reads []epoch
	for _, old := range h.sets[set] {
		if old.rank != e.rank && old.clock > clock[old.rank] {
			reads = append(reads, old)
		}
	}
	h.sets = append(h.sets, append(reads, e))
	return int32(len(h.sets) - 1)
}

func (m *memory) unclaim(po *post) {
	for i := range m.claims {
		if m.claims[i].po == po {
			last := len(m.claims) - 1
			m.claims[i] = m.claims[last]
			m.claims = m.claims[:last]
			return
		}
	}
}

// cursor walks a memory forward from an origin.
type cursor struct {
	m    *memory
	i    int
	base int
}

func (m *memory) cursor(base int) cursor { return cursor{m, m.find(base), base} }

// at returns the value at pos elements after the origin, and for how many
// elements it holds.
func (c *cursor) at(pos int) (v value, left int) {
	for c.m.hi(c.i) <= c.base+pos {
		c.i++
	}
	v = c.m.segs[c.i].v
	v.shift += c.base
	return v, c.m.hi(c.i) - c.base - pos
}
