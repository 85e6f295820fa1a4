package cache

import (
	"fmt"
	"sync/atomic"
)

// privatePool is a pair of pools apart from the ordinary ones: of a graph, whose memory must stay its own between
// replays, or of a user.
type privatePool struct {
	id           PoolID
	small, large pool
	source       Source // of its segments; nil: the driver
	users        int    // BeginPool and RetainPool without ReleasePool
	segments     int
}

// scope is a BeginPool without EndPool.
type scope struct {
	pool    *privatePool
	streams func(Stream) bool
	capture bool
}

var lastPool atomic.Uint64

// NewPoolID returns a name that no pool of this process has.
func NewPoolID() PoolID { return PoolID{0, lastPool.Add(1)} }

// BeginPool makes allocations for the streams that a function accepts, or for all if it's nil, come from a private pool
// until [Cache.EndPool]. The pool is made if it isn't there; it lives until [Cache.ReleasePool] was called as often as
// BeginPool. While capture is set, a graph is being captured: events are neither recorded nor asked for, and no memory
// goes back to the driver.
//
// streams is called with the cache's lock held.
func (c *Cache) BeginPool(id PoolID, streams func(Stream) bool, capture bool) error {
	if id == (PoolID{}) {
		return invalid("the zero PoolID names the ordinary pools")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.scopes {
		if s.pool.id == id {
			return invalid("BeginPool of pool %v, which has begun", id)
		}
	}
	pp := c.private[id]
	if pp == nil {
		pp = &privatePool{id: id}
		pp.small.small = true
		for _, p := range []*pool{&pp.small, &pp.large} {
			p.private, p.unmapped.byAddress = pp, true
		}
		c.private[id] = pp
	}
	pp.users++
	c.scopes = append(c.scopes, scope{pool: pp, streams: streams, capture: capture})
	if capture {
		c.capturing++
	}
	return nil
}

// Capturing reports whether a graph is being captured, by BeginPool.
func (c *Cache) Capturing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.capturing > 0
}

// Source is where a private pool gets its memory, instead of from the driver: a library, say, that is fastest with its
// own. Its methods are called with the cache's lock held.
type Source interface {
	// Alloc and Free are as the driver's.
	Alloc(size int64) (addr uintptr, err error)
	Free(addr uintptr) error
}

// NewPool makes a private pool over a source, which stays. [Cache.MallocIn] allocates from it, and so does what comes
// between BeginPool and EndPool; what's freed there is given back as that of the ordinary pools.
func (c *Cache) NewPool(from Source) PoolID {
	pp := &privatePool{id: NewPoolID(), source: from}
	pp.small.small = true
	for _, p := range []*pool{&pp.small, &pp.large} {
		p.private, p.unmapped.byAddress = pp, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.private[pp.id] = pp
	return pp.id
}

// EndPool ends what BeginPool began. Memory that was allocated stays in the pool.
func (c *Cache) EndPool(id PoolID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.scopes {
		if s.pool.id == id {
			c.scopes = append(c.scopes[:i], c.scopes[i+1:]...)
			if s.capture {
				c.capturing--
				return c.releaseForgotten()
			}
			return nil
		}
	}
	return fmt.Errorf("cache: EndPool of pool %v, which hasn't begun: %w", id, ErrUnknownPool)
}

// ReleasePool says that one user of a pool is gone, for example a graph. After the last, the pool's free memory can go
// back to the driver, and the pool is gone when all of it has.
func (c *Cache) ReleasePool(id PoolID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pp := c.private[id]
	if pp == nil || pp.users == 0 {
		return fmt.Errorf("cache: ReleasePool of pool %v: %w", id, ErrUnknownPool)
	}
	if pp.users--; pp.users > 0 {
		return nil
	}
	if pp.segments == 0 && pp.source == nil {
		delete(c.private, id)
	}
	return c.releaseForgotten()
}

// leftPool counts a segment that left a pool.
func (c *Cache) leftPool(p *pool) {
	pp := p.private
	if pp == nil {
		return
	}
	if pp.segments--; pp.segments == 0 && pp.users == 0 && pp.source == nil {
		delete(c.private, pp.id)
	}
}

// poolFor returns where a request is served.
func (c *Cache) poolFor(own *privatePool, size int64, s Stream) *pool {
	small, large := &c.small, &c.large
	if own != nil {
		small, large = &own.small, &own.large
	}
	for _, sc := range c.scopes {
		if own == nil && (sc.streams == nil || sc.streams(s)) {
			small, large = &sc.pool.small, &sc.pool.large
			break
		}
	}
	if size <= smallSize {
		return small
	}
	return large
}
