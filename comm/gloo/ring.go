package gloo

import (
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// segments are the parts in which a buffer goes round a ring of n ranks. There are per for each rank, each of size
// bytes; those behind the buffer's end are empty and not sent.
type segments struct {
	n, rank    int
	bytes      int
	per, count int
	size       int
}

// maxSegment is the most bytes of a segment, to the next whole element.
const maxSegment = 1 << 20

func roundUp(n, to int) int { return (n + to - 1) / to * to }
func divide(n, by int) int  { return (n + by - 1) / by }

// allReduceSegments are those of an all-reduce.
func allReduceSegments(n, rank, bytes, elem int) segments {
	most := elem * max(1, maxSegment/elem)
	count := roundUp(max(divide(bytes, most), 2*n), n)
	size := roundUp(divide(bytes, count), elem)
	return segments{n: n, rank: rank, bytes: bytes, count: count, per: count / n, size: size}
}

// reduceSegments are those of a reduce.
func reduceSegments(n, rank, bytes, elem int) segments {
	size := roundUp(min(divide(bytes, 2*n), elem*(maxSegment/elem)), elem)
	count := roundUp(max(divide(bytes, size), 2*n), n)
	return segments{n: n, rank: rank, bytes: bytes, count: count, per: count / n, size: size}
}

// at returns the i-th segment, counted from those of the rank that is ahead by so many.
func (s *segments) at(ahead, i int) (off, n int) {
	off = ((s.rank+ahead)*s.per + i) * s.size % (s.count * s.size)
	return off, max(0, min(s.size, s.bytes-off))
}

// within returns the place of n bytes of a buffer; nil if they are none, which may lie behind its end.
func within(buf unsafe.Pointer, off, n int) unsafe.Pointer {
	if n == 0 {
		return nil
	}
	return unsafe.Add(buf, off)
}

// ring passes a number of segments on. In each step one is received from the next rank and one is sent to the one
// before; two steps are under way. came is called with what a step has received.
func (g *group) ring(steps int, recv, send func(i int) (p unsafe.Pointer, n int), came func(i int)) error {
	var ins, outs [2]*fabric.Msg
	next, before := (g.rank+1)%g.size, (g.rank+g.size-1)%g.size
	for i := range steps + 2 {
		k := i & 1
		if ins[k] != nil {
			if err := g.await(ins[k]); err != nil {
				return err
			}
			if ins[k] = nil; came != nil {
				came(i - 2)
			}
		}
		if outs[k] != nil {
			if err := g.await(outs[k]); err != nil {
				return err
			}
			outs[k] = nil
		}
		if i >= steps {
			continue
		}
		if p, n := recv(i); n > 0 {
			ins[k] = g.post(next, p, n, false)
		}
		if p, n := send(i); n > 0 {
			outs[k] = g.post(before, p, n, true)
		}
	}
	return nil
}

// reduceRing reduces buf, so that each rank has the result of its segments, and more of them if there are more steps.
func (g *group) reduceRing(s *segments, buf unsafe.Pointer, steps int) error {
	tmp, err := g.scratch.Take(2 * s.size)
	if err != nil {
		return err
	}
	part := func(i int) unsafe.Pointer { return unsafe.Add(tmp, i&1*s.size) }
	return g.ring(steps,
		func(i int) (unsafe.Pointer, int) {
			_, n := s.at(2, i)
			return part(i), n
		},
		func(i int) (unsafe.Pointer, int) {
			off, n := s.at(1, i)
			return within(buf, off, n), n
		},
		func(i int) {
			off, n := s.at(2, i)
			g.fold(within(buf, off, n), part(i), n/g.work.Elem)
		})
}

// allReduce reduces buf on all ranks.
func (g *group) allReduce(buf unsafe.Pointer, bytes int) error {
	if g.size == 1 || bytes == 0 {
		return nil
	}
	s := allReduceSegments(g.size, g.rank, bytes, g.work.Elem)
	steps := s.count - s.per
	if err := g.reduceRing(&s, buf, steps); err != nil {
		return err
	}
	from := func(ahead int) func(i int) (unsafe.Pointer, int) {
		return func(i int) (unsafe.Pointer, int) {
			off, n := s.at(ahead, i)
			return within(buf, off, n), n
		}
	}
	return g.ring(steps, from(1), from(0), nil)
}

// reduce reduces buf at the root; elsewhere it holds whatever.
func (g *group) reduce(buf unsafe.Pointer, bytes, root int) error {
	if g.size == 1 || bytes == 0 {
		return nil
	}
	s := reduceSegments(g.size, g.rank, bytes, g.work.Elem)
	if err := g.reduceRing(&s, buf, s.count-2); err != nil {
		return err
	}
	chunk := func(r int) (unsafe.Pointer, int) {
		off := r * s.per * s.size
		n := max(0, min(s.per*s.size, bytes-off))
		return within(buf, off, n), n
	}
	if g.rank != root {
		if p, n := chunk(g.rank); n > 0 {
			g.post(root, p, n, true)
		}
		return g.all()
	}
	for r := range g.size {
		if p, n := chunk(r); n > 0 && r != root {
			g.post(r, p, n, false)
		}
	}
	return g.all()
}
