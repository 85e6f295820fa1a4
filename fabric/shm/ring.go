package shm

import (
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
)

// outRing is the sending end of a ring: a section of the peer's inbox. The peer's
// lock guards it.
type outRing struct {
	head *ringHead
	area []byte

	next     uint64 // position of the next entry
	consumed uint64 // as last seen
	used     uint64 // bytes of area given out, ever; gaps at the wrap included
	freed    uint64 // bytes of area whose entries were consumed
	ends     [entryCount]uint64
}

// reserve finds room for one more entry with n bytes in the area (0: the payload
// fits the entry). It returns nil if the ring is full.
func (r *outRing) reserve(n int) (e *entry, at uint64, err error) {
	need := uint64(n+63) &^ 63
	size := uint64(len(r.area))
	for try := 0; ; try++ {
		at = r.used % size
		skip := uint64(0)
		if at+need > size {
			skip, at = size-at, 0
		}
		if r.next-r.consumed < entryCount && r.used+skip+need-r.freed <= size {
			r.used += skip + need
			return &r.head.entries[r.next%entryCount], at, nil
		}
		switch try {
		case 0:
		case 1: // ask for the bell, and look again in case room was made meanwhile
			r.head.starved.Store(1)
		default:
			return nil, 0, nil
		}
		if err := r.refresh(); err != nil {
			return nil, 0, err
		}
	}
}

// refresh looks up what the peer has consumed.
func (r *outRing) refresh() error {
	c := r.head.consumed.Load()
	if c < r.consumed || c > r.next {
		return corrupt("%d entries consumed of %d", c, r.next)
	}
	if c > r.consumed {
		r.consumed = c
		r.freed = r.ends[(c-1)%entryCount]
	}
	return nil
}

// publish makes the reserved entry visible.
func (r *outRing) publish(e *entry, kind, flags uint8) {
	r.ends[r.next%entryCount] = r.used
	r.next++
	e.stamp.Store(r.next<<16 | uint64(kind)<<8 | uint64(flags))
}

// describe fills in what a message is known by, and returns the flags.
func (e *entry) describe(m *fabric.Msg) uint8 {
	e.comm, e.tag = m.Key.Comm, m.Key.Tag
	flags := uint8(m.Key.Class) & flagClass
	if m.Desc != (fabric.Desc{}) {
		*(*fabric.Desc)(unsafe.Pointer(&e.body)) = m.Desc
		flags |= flagDesc
	}
	return flags
}

// whole sends a message with its payload. It reports false if the ring is full.
func (r *outRing) whole(m *fabric.Msg) (bool, error) {
	described := m.Desc != (fabric.Desc{})
	inline := m.Len <= inlineBytes(described)
	n := m.Len
	if inline {
		n = 0
	}
	e, at, err := r.reserve(n)
	if e == nil {
		return false, err
	}
	flags := e.describe(m)
	e.n, e.at = uint32(m.Len), at
	dst := unsafe.Pointer(&e.body)
	if described {
		dst = unsafe.Add(dst, 8*descWords)
	}
	if !inline {
		dst = unsafe.Pointer(&r.area[at])
	}
	kern.Copy(dst, m.Buf, m.Len)
	r.publish(e, kindWhole, flags)
	return true, nil
}

// ready announces a message whose payload stays where it is.
func (r *outRing) ready(m *fabric.Msg, id uint64, place fabric.Place) (bool, error) {
	e, _, err := r.reserve(0)
	if e == nil {
		return false, err
	}
	flags := e.describe(m)
	b := e.body[descWords:]
	b[0], b[1], b[2], b[3], b[4] = uint64(m.Len), id, uint64(uintptr(m.Buf)), place.Segment, place.Offset
	r.publish(e, kindReady, flags)
	return true, nil
}

// piece sends the next bytes for a pull.
func (r *outRing) piece(pull uint64, src unsafe.Pointer, n int) (bool, error) {
	e, at, err := r.reserve(n)
	if e == nil {
		return false, err
	}
	e.tag, e.n, e.at = pull, uint32(n), at
	dst := unsafe.Pointer(&r.area[at])
	if n <= bodyBytes {
		dst = unsafe.Pointer(&e.body)
	}
	kern.Copy(dst, src, n)
	r.publish(e, kindPiece, 0)
	return true, nil
}

// note sends a control message from one rank's progress to the other's.
func (r *outRing) note(kind uint8, id, pull uint64) (bool, error) {
	e, _, err := r.reserve(0)
	if e == nil {
		return false, err
	}
	e.body[0], e.body[1] = id, pull
	r.publish(e, kind, 0)
	return true, nil
}

// crowded reports whether less than half of the entries are free: pieces then
// wait, so that other messages find room.
func (r *outRing) crowded() (bool, error) {
	if r.next-r.consumed <= entryCount/2 {
		return false, nil
	}
	for range 2 { // ask for the bell, and look again in case room was made meanwhile
		if err := r.refresh(); err != nil || r.next-r.consumed <= entryCount/2 {
			return false, err
		}
		r.head.starved.Store(1)
	}
	return true, nil
}

// inRing is the receiving end of a ring: a section of this rank's inbox. The progress
// lock guards it.
type inRing struct {
	head *ringHead
	area []byte
	next uint64 // position of the next entry
	told uint64 // consumed, as the peer may know
}

// peek returns the stamp of the next entry if it's there. It's what a waiting rank polls.
func (r *inRing) peek() (stamp uint64, ok bool, err error) {
	stamp = r.head.entries[r.next%entryCount].stamp.Load()
	switch at := stamp >> 16; {
	case at == r.next+1:
		return stamp, true, nil
	case at+entryCount == r.next+1, at == 0 && r.next < entryCount:
		return 0, false, nil
	default:
		return 0, false, corrupt("entry %d is stamped %d", r.next, at)
	}
}

func (r *inRing) entry() *entry { return &r.head.entries[r.next%entryCount] }

// release gives all entries before next back to the peer, and reports whether it waits for room.
func (r *inRing) release() (starved bool) {
	if r.told == r.next {
		return false
	}
	r.told = r.next
	r.head.consumed.Store(r.next)
	return r.head.starved.Load() != 0 && r.head.starved.Swap(0) != 0
}
