// Package plans keeps what libraries have prepared for work of one form, such as transforms of one size.
//
//	c := plans.New[key, handle](plans.Default, destroy)
//	err := c.Use(k, func() (handle, error) { return make(k) }, func(h handle) error { return run(h) })
//
// The plans that were used last are kept, up to a number that can be changed, as in
// torch.backends.cuda.cufft_plan_cache.
package plans

import (
	"container/list"
	"fmt"
	"sync"
)

// Default is how many plans PyTorch keeps for a device.
const Default = 4096

// Cache is a device's plans. Its methods are safe for concurrent use.
type Cache[K comparable, P any] struct {
	drop func(P)

	mu    sync.Mutex
	most  int
	order list.List // of plan[K, P], the last used first
	of    map[K]*list.Element
	dead  []P // not kept any more
}

type plan[K comparable, P any] struct {
	key K
	p   P
}

// New makes a cache of so many plans at most. drop gets what isn't kept any more, from [Cache.Reap].
func New[K comparable, P any](most int, drop func(P)) *Cache[K, P] {
	return &Cache[K, P]{drop: drop, most: most, of: map[K]*list.Element{}}
}

// Use calls f with the plan of a key, which make makes if there's none. No other caller has the plan meanwhile.
func (c *Cache[K, P]) Use(k K, make func() (P, error), f func(P) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.of[k]
	if e == nil {
		p, err := make()
		if err != nil {
			return err
		}
		e = c.order.PushFront(plan[K, P]{k, p})
		c.of[k] = e
	}
	c.order.MoveToFront(e)
	err := f(e.Value.(plan[K, P]).p)
	c.shrink(c.most)
	return err
}

// shrink keeps so many. It's locked.
func (c *Cache[K, P]) shrink(most int) {
	for c.order.Len() > most {
		c.remove(c.order.Back())
	}
}

func (c *Cache[K, P]) remove(e *list.Element) {
	x := c.order.Remove(e).(plan[K, P])
	delete(c.of, x.key)
	c.dead = append(c.dead, x.p)
}

// Reap drops plans that aren't kept any more. It's called without locks that drop takes.
func (c *Cache[K, P]) Reap() {
	c.mu.Lock()
	dead := c.dead
	c.dead = nil
	c.mu.Unlock()
	for _, p := range dead {
		c.drop(p)
	}
}

// Forget keeps no plan whose key f holds for; [Cache.Reap] drops them.
func (c *Cache[K, P]) Forget(f func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.of {
		if f(k) {
			c.remove(e)
		}
	}
}

// Len is how many plans are kept.
func (c *Cache[K, P]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// Most is how many plans are kept at most.
func (c *Cache[K, P]) Most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// SetMost changes that. Plans above it are dropped, those that weren't used for the longest time.
func (c *Cache[K, P]) SetMost(n int) error {
	if n < 0 {
		return fmt.Errorf("a cache of %d plans", n)
	}
	c.mu.Lock()
	c.most = n
	c.shrink(n)
	c.mu.Unlock()
	c.Reap()
	return nil
}

// Clear drops all plans.
func (c *Cache[K, P]) Clear() {
	c.Forget(func(K) bool { return true })
	c.Reap()
}
