package native

import (
	"math/bits"
	"time"
)

// storing chooses how a rank fills its stage. Ordinary stores leave the lines in
// this core's cache, from where a near core reads them fast; but when the cores are far
// apart every line must first be fetched back from the reader, and stores that
// bypass the cache are several times faster. Where a virtual machine's cores are
// changes every few seconds, so both ways are measured all the time: now and
// then an operation takes the way that was slower last. The choice is each
// rank's own, for it changes no protocol and no bit.
type storing struct {
	classes [64]storeClass // by the size of the operation, in powers of two
}

type storeClass struct {
	ops  uint32
	cost [2]float64 // nanoseconds per operation; decaying minimum, as waiting for others only adds
}

const (
	storeThreshold = 16 << 10 // bytes of a copy below which lines stay in the nearest cache anyway
	exploreEvery   = 32       // operations
	forget         = 1.02     // by which a minimum grows per operation that measures it
)

// choose returns whether the next operation of that many bytes should bypass the cache.
func (s *storing) choose(bytes int) (c *storeClass, bypass bool) {
	c = &s.classes[bits.Len(uint(bytes))%len(s.classes)]
	c.ops++
	switch {
	case c.ops <= 4: // both ways twice
		return c, c.ops%2 == 0
	case c.ops%exploreEvery == 0:
		return c, c.cost[1] >= c.cost[0]
	}
	return c, c.cost[1] < c.cost[0]
}

// measured records how long an operation took.
func (c *storeClass) measured(bypass bool, d time.Duration) {
	way := 0
	if bypass {
		way = 1
	}
	if old := c.cost[way]; old == 0 || float64(d) < old*forget {
		c.cost[way] = float64(d)
	} else {
		c.cost[way] = old * forget
	}
}
