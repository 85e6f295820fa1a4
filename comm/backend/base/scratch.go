package base

import (
	"unsafe"

	"github.com/chorus-comms/chorus/hostmem"
)

// Scratch is private working memory of a communicator: taken piece by piece during an
// operation and all given back at its end. It's shared memory, so that peers can
// fetch messages from it without a detour.
type Scratch struct {
	blocks []*hostmem.Block
	used   int // bytes of the last block
	want   int // bytes of the next block, at least: what an operation has needed
}

// Take returns n bytes, aligned to a cache line, undefined in content, until Reset.
func (s *Scratch) Take(n int) (unsafe.Pointer, error) {
	n = (n + 63) &^ 63
	if k := len(s.blocks); k > 0 {
		if b := s.blocks[k-1]; s.used+n <= b.Len() {
			p := unsafe.Add(b.Pointer(), s.used)
			s.used += n
			return p, nil
		}
	}
	b, err := hostmem.Alloc(max(n, s.want, 64<<10))
	if err != nil {
		return nil, err
	}
	s.blocks = append(s.blocks, b)
	s.used, s.want = n, 0
	return b.Pointer(), nil
}

// Reset gives everything back. If it took several blocks, the next operation gets one
// that holds as much.
func (s *Scratch) Reset() {
	if s.used = 0; len(s.blocks) > 1 {
		s.merge()
	}
}

// merge frees all and has the next block hold as much.
func (s *Scratch) merge() {
	s.want = 0
	for _, b := range s.blocks {
		s.want += b.Len()
	}
	s.Free()
}

// Free frees all of it.
func (s *Scratch) Free() {
	for _, b := range s.blocks {
		b.Free()
	}
	s.blocks = nil
}
