package native

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/kern"
)

// storing chooses how a rank fills its stage. Ordinary stores leave the lines in
// this core's cache, from where a near core reads them fast; but when the cores are far
// apart every line must first be fetched back from the reader, and stores that
// bypass the cache are ten times faster. Where a virtual machine's cores are changes
// every few seconds, so it's measured all the time, by the copies themselves: they wait for nobody, so that
// their speed tells nothing else. The choice is each rank's own, for it changes no protocol and no bit.
type storing struct {
	classes [64]storeClass // by the bytes that an operation fills, in powers of two
	class   *storeClass    // of the operation under way; nil if a hint has decided
	bypass  bool           // if so, what
}

// storeClass is what is known of operations of one size, whose input comes from the same caches.
type storeClass struct {
	fills  uint32
	bypass bool
	speed  [2][2]float64 // bytes per nanosecond of the last two fills, ordinary and bypassing
}

const (
	storeThreshold = 4 << 10  // bytes of a copy below which synchronization costs more than it
	timedAlways    = 64 << 10 // bytes of a copy from which on looking at the clock costs nothing beside it
	timedPeriod    = 4        // of smaller copies, those that are timed
	exploreEvery   = 32       // fills, after which one goes the other way; a multiple of timedPeriod
	probe          = 16 << 10 // bytes that go the other way then: far apart, all of them would cost as much as ten fills
	learning       = 24       // fills at the start that go both ways in turn; the first ones meet pages that have no memory yet
	farther        = 4        // times slower than bypassing: ordinary stores were 0.7 to 1.5 times as fast near, and 0.06 far
)

// begin says what operation follows: how many bytes it fills, and what a hint says of it.
func (s *storing) begin(bytes int, hint string) {
	s.class, s.bypass = nil, hint == "bypass"
	if hint == "" {
		s.class = &s.classes[bits.Len(uint(bytes))%len(s.classes)]
	}
}

// bypasses returns what is best by what was measured.
func (s *storing) bypasses() bool {
	if s.class != nil {
		return s.class.bypass
	}
	return s.bypass
}

// fill copies into the stage.
func (s *storing) fill(dst, src unsafe.Pointer, bytes int) {
	c := s.class
	if c == nil {
		put(s.bypass, dst, src, bytes)
		return
	}
	bypass := c.next()
	if bytes < timedAlways && c.fills > learning && c.fills%timedPeriod != 0 {
		put(bypass, dst, src, bytes)
		return
	}
	n := bytes
	if c.fills > learning && bypass != c.bypass {
		n = min(bytes, probe)
	}
	start := time.Now()
	put(bypass, dst, src, n)
	c.measured(bypass, float64(n)/float64(time.Since(start)+1))
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
func (c *storeClass) next() bool {
	c.fills++
	if c.fills <= learning {
		return c.fills/2%2 == 1
	}
	return c.bypass != (c.fills%exploreEvery == 0)
}

// measured records how fast a fill was. Of two, the faster counts: the other one may have been interrupted.
func (c *storeClass) measured(bypass bool, speed float64) {
	way := &c.speed[0]
	if bypass {
		way = &c.speed[1]
	}
	way[0], way[1] = way[1], speed
	c.bypass = max(c.speed[0][0], c.speed[0][1])*farther < max(c.speed[1][0], c.speed[1][1])
}
