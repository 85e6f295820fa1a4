package zmtp

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
)

const (
	// maxTopics are those of one subscriber, and maxTopic the bytes of each.
	maxTopics, maxTopic = 1024, 255
	// maxQueued is how many bytes may wait for a subscriber before the publisher waits for it.
	maxQueued = 64 << 20
)

// Pub is a socket PUB that listens. A message reaches all that have subscribed to it, and none that subscribe later. A
// subscriber that reads nothing loses its connection.
type Pub struct {
	listener
	subscribers map[*subscriber]struct{}
	room        *sync.Cond // some is less behind, or has gone; the lock is the listener's
}

// subscriber is one connection. The listener's lock guards the fields that change.
type subscriber struct {
	*conn
	topics map[string]bool
	queue  []net.Buffers
	bytes  int        // in queue, and being written
	filled *sync.Cond // there is something to write, or gone is set
	gone   bool
}

// ListenPub begins to listen at an address, which is host:port.
func ListenPub(addr string, o Options) (*Pub, error) {
	p := &Pub{subscribers: map[*subscriber]struct{}{}}
	p.room = sync.NewCond(&p.mu)
	if err := p.listen(addr, pub, o, p.subscribe); err != nil {
		return nil, err
	}
	return p, nil
}

// Close ends the socket. Messages that weren't read yet are lost.
func (p *Pub) Close() error {
	err := p.close()
	p.mu.Lock()
	for s := range p.subscribers {
		p.leave(s)
	}
	p.room.Broadcast()
	p.mu.Unlock()
	p.tasks.Wait()
	return err
}

// subscribe serves a connection: it takes its subscriptions, while another goroutine writes.
func (p *Pub) subscribe(c *conn) error {
	s := &subscriber{conn: c, topics: map[string]bool{}}
	s.filled = sync.NewCond(&p.mu)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.subscribers[s] = struct{}{}
	p.tasks.Go(func() { p.write(s) })
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.leave(s)
		p.mu.Unlock()
	}()
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		on, topic, ok := subscription(m)
		if !ok || len(topic) > maxTopic {
			return broken("neither a subscription nor the end of one")
		}
		p.mu.Lock()
		if on {
			s.topics[topic] = true
		} else {
			delete(s.topics, topic)
		}
		many := len(s.topics) > maxTopics
		p.mu.Unlock()
		if many {
			return broken("too many subscriptions")
		}
	}
}

// subscription reads what a subscriber sends: a message that begins with 1 or 0, or, from version 3.1 on, a command.
func subscription(m message) (on bool, topic string, ok bool) {
	if m.command {
		name, body, err := parseCommand(m.frames[0])
		return name == "SUBSCRIBE", string(body), err == nil && (name == "SUBSCRIBE" || name == "CANCEL")
	}
	f := m.frames[0]
	if len(m.frames) != 1 || len(f) == 0 || f[0] > 1 {
		return false, "", false
	}
	return f[0] == 1, string(f[1:]), true
}

// leave forgets a subscriber. The lock is held.
func (p *Pub) leave(s *subscriber) {
	if s.gone {
		return
	}
	s.gone, s.queue = true, nil
	s.Conn.Close()
	delete(p.subscribers, s)
	s.filled.Broadcast()
	p.room.Broadcast()
}

// write writes what is published to a subscriber.
func (p *Pub) write(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(s.queue) == 0 && !s.gone {
			s.filled.Wait()
		}
		if s.gone {
			return
		}
		batch := slices.Concat(s.queue...)
		s.queue = s.queue[:0]
		n := s.bytes
		p.mu.Unlock()
		err := s.conn.write(batch)
		p.mu.Lock()
		s.bytes -= n
		if err != nil {
			if isTimeout(err) {
				p.o.log(errors.New("zmtp: a subscriber that reads nothing is dropped"))
			}
			p.leave(s)
			return
		}
		p.room.Broadcast()
	}
}

// Send publishes a message, whose first frame is what others subscribe to by its beginning. The frames are the socket's
// from then on. It waits while a subscriber is far behind, but reads.
func (p *Pub) Send(frames ...[]byte) error {
	m := encode(frames...)
	size := 0
	for _, b := range m {
		size += len(b)
	}
	topic := string(frames[0])
	p.mu.Lock()
	defer p.mu.Unlock()
	var to []*subscriber
	for s := range p.subscribers {
		if s.wants(topic) {
			to = append(to, s)
		}
	}
	for _, s := range to {
		for s.bytes > maxQueued && !s.gone {
			p.room.Wait()
		}
		if !s.gone {
			s.queue = append(s.queue, m)
			s.bytes += size
			s.filled.Signal()
		}
	}
	if p.closed {
		return ErrClosed
	}
	return nil
}

func (s *subscriber) wants(topic string) bool {
	if s.topics[topic] {
		return true
	}
	for t := range s.topics {
		if strings.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

// Subscribed reports whether anybody has subscribed to a topic, in these very words.
func (p *Pub) Subscribed(topic string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		if s.topics[topic] {
			return true
		}
	}
	return false
}
