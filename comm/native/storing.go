package native

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/kern"
)

// storing chooses how a rank fills its stage. Ordinary stores leave the lines in this core's cache, from
// where a near core reads them fast. When the cores are far apart, every line must first be fetched back
// from the reader, and stores that bypass the cache are up to ten times faster. The location of a virtual
// machine's cores changes every few seconds, so it's measured all the time, by the copies themselves. These
// wait for no other rank, so their speed depends on nothing else. The choice is each rank's own, since it
// changes no protocol and no bit.
//
// The result of fills of one size holds for all sizes, so that the first operation of another size need not measure it
// again.
type storing struct {
	classes [64]storeClass // by the bytes that an operation fills, in powers of two
	class   *storeClass    // of the operation under way; nil if a hint has decided
	hinted  bool           // if so, to bypass
	far     bool           // to bypass is best, by what was measured
	fills   uint32
	moves   uint32 // how often far has changed
}

// storeClass is what is known of operations of one size, whose input comes from the same caches.
type storeClass struct {
	fills uint32
	moves uint32        // of storing, when this began
	speed [2][2]float64 // bytes per nanosecond of the last two fills, ordinary and bypassing; 0: none yet
}

const (
	storeThreshold = 4 << 10  // bytes of a copy below which synchronization costs more than it
	timedAlways    = 64 << 10 // bytes of a copy from which on looking at the clock costs nothing beside it
	timedPeriod    = 4        // of smaller copies, those that are timed
	exploreEvery   = 32       // fills, after which one goes the other way; a multiple of timedPeriod
	probe          = 16 << 10 // bytes that go the other way then: far apart, all of them would cost as much as ten fills
	// Fills at the start that go both ways in turn; the first ones meet pages that have no memory yet.
	learning = 24
	// How many times faster bypassing must be. Near, it was 0.3 to 1.4 times as fast as ordinary stores; far, 16 times,
	// or, where the input comes from memory, 2.3.
	farther = 1.75
)

// begin says what operation follows: how many bytes it fills, and what a hint says of it.
func (s *storing) begin(bytes int, hint string) {
	if hint != "" {
		s.class, s.hinted = nil, hint == "bypass"
		return
	}
	c := &s.classes[bits.Len(uint(bytes))%len(s.classes)]
	if c.moves != s.moves { // what was measured before the cores moved says nothing
		c.moves, c.speed = s.moves, [2][2]float64{}
	}
	s.class = c
}

// bypasses returns what is best.
func (s *storing) bypasses() bool {
	if s.class == nil {
		return s.hinted
	}
	return s.far
}

// fill copies into the stage.
func (s *storing) fill(dst, src unsafe.Pointer, bytes int) {
	c := s.class
	if c == nil {
		put(s.hinted, dst, src, bytes)
		return
	}
	bypass := s.next()
	if bytes < timedAlways && s.fills > learning && c.fills%timedPeriod != 0 {
		put(bypass, dst, src, bytes)
		return
	}
	n := bytes
	if s.fills > learning && bypass != s.far {
		n = min(bytes, probe)
	}
	start := time.Now()
	put(bypass, dst, src, n)
	s.measured(bypass, float64(n)/float64(time.Since(start)+1))
	if n < bytes {
		put(!bypass, unsafe.Add(dst, n), unsafe.Add(src, n), bytes-n)
	}
}

func put(bypass bool, dst, src unsafe.Pointer, bytes int) {
	if bypass {
		kern.CopyNT(dst, src, bytes)
	} else {
		kern.Copy(dst, src, bytes)
	}
}

// next returns whether the next fill is to bypass the cache.
func (s *storing) next() bool {
	s.fills++
	s.class.fills++
	if s.fills <= learning {
		return s.fills/2%2 == 1
	}
	return s.far != (s.class.fills%exploreEvery == 0)
}

// measured records how fast a fill was. Of two, the faster counts: the other one may have been interrupted.
func (s *storing) measured(bypass bool, speed float64) {
	c := s.class
	way := &c.speed[0]
	if bypass {
		way = &c.speed[1]
	}
	way[0], way[1] = way[1], speed
	ordinary, past := max(c.speed[0][0], c.speed[0][1]), max(c.speed[1][0], c.speed[1][1])
	if ordinary == 0 || past == 0 {
		return
	}
	if far := ordinary*farther < past; far != s.far {
		s.far = far
		s.moves++
		c.moves = s.moves
	}
}
