package cache

import "slices"

// eventQueue has the events of one stream in order, each with the block that waits for it. They happen in that order.
type eventQueue struct {
	stream Stream
	events []blockEvent
	first  int // what is before has happened
}

type blockEvent struct {
	event Event
	block *block
}

// recordUses records an event on each stream that uses a block and forgets the uses. If one can't be recorded, none is.
func (c *Cache) recordUses(b *block) error {
	if len(b.uses) == 0 {
		return nil
	}
	events := make([]Event, len(b.uses))
	for i, s := range b.uses {
		var err error
		if events[i], err = c.driver.Record(s); err != nil {
			for _, e := range events[:i] {
				c.driver.Release(e)
			}
			return err
		}
	}
	for i, s := range b.uses {
		q := c.queue(s)
		q.events = append(q.events, blockEvent{events[i], b})
	}
	b.events += len(events)
	c.outstanding += len(events)
	b.uses = b.uses[:0]
	return nil
}

// endUse replaces uses by a stream, which is about to be destroyed, by events on it.
func (c *Cache) endUse(b *block, s Stream) error {
	i := slices.Index(b.uses, s)
	if i < 0 {
		return nil
	}
	e, err := c.driver.Record(s)
	if err != nil {
		return err
	}
	q := c.queue(s)
	q.events = append(q.events, blockEvent{e, b})
	b.events++
	c.outstanding++
	b.uses = slices.Delete(b.uses, i, i+1)
	return nil
}

func (c *Cache) queue(s Stream) *eventQueue {
	for i := range c.pending {
		if c.pending[i].stream == s {
			return &c.pending[i]
		}
	}
	c.pending = append(c.pending, eventQueue{stream: s})
	return &c.pending[len(c.pending)-1]
}

// pop forgets the first event, which has happened.
func (c *Cache) pop(q *eventQueue) error {
	e := q.events[q.first]
	q.events[q.first] = blockEvent{}
	if q.first++; q.first == len(q.events) {
		q.events, q.first = q.events[:0], 0
	}
	c.outstanding--
	c.driver.Release(e.event)
	return c.happened(e.block)
}

// processEvents frees the blocks whose events have happened.
func (c *Cache) processEvents() error {
	if len(c.deferred) > 0 {
		if err := c.recordDeferred(); err != nil {
			return err
		}
	}
	if c.outstanding == 0 {
		return nil
	}
	for i := range c.pending {
		q := &c.pending[i]
		for q.first < len(q.events) {
			done, err := c.driver.Query(q.events[q.first].event)
			if err != nil {
				return err
			}
			if !done {
				break
			}
			if err := c.pop(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordDeferred records the events that couldn't be recorded while a graph was captured.
func (c *Cache) recordDeferred() error {
	for len(c.deferred) > 0 {
		if err := c.recordUses(c.deferred[0]); err != nil {
			return err
		}
		c.deferred = c.deferred[1:]
	}
	c.deferred = nil
	return nil
}

// waitEvents waits for all events.
func (c *Cache) waitEvents() error {
	if err := c.recordDeferred(); err != nil {
		return err
	}
	c.stats.NumSyncAllStreams++
	for i := range c.pending {
		q := &c.pending[i]
		for q.first < len(q.events) {
			if err := c.driver.Wait(q.events[q.first].event); err != nil {
				return err
			}
			if err := c.pop(q); err != nil {
				return err
			}
		}
	}
	return nil
}
