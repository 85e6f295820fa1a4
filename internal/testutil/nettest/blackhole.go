package nettest

import (
	"net"
	"sync"
	"sync/atomic"
)

// A Blackhole passes connections on to an address, until it's cut. Then it falls silent, as if the cable was pulled:
// nothing passes any more, and neither end is notified.
//
//	link, err := nettest.NewBlackhole("127.0.0.1:29400")
//	dial(link.Addr())
//	link.Cut()
//
// Its methods may be called from any goroutine.
type Blackhole struct {
	listener net.Listener
	to       string
	silent   atomic.Bool
	all      sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// NewBlackhole makes a link to an address, at a port of the loopback.
func NewBlackhole(to string) (*Blackhole, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &Blackhole{listener: l, to: to}
	k.all.Go(k.accept)
	return k, nil
}

// Addr is where to connect to, as host:port.
func (k *Blackhole) Addr() string { return k.listener.Addr().String() }

// Cut makes the link silent, for connections to come, too.
func (k *Blackhole) Cut() { k.silent.Store(true) }

// Close ends the link and all its connections.
func (k *Blackhole) Close() {
	k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for _, c := range k.conns {
		c.Close()
	}
	k.mu.Unlock()
	k.all.Wait()
}

func (k *Blackhole) accept() {
	for {
		a, err := k.listener.Accept()
		if err != nil {
			return
		}
		if !k.keep(a) || k.silent.Load() {
			continue
		}
		b, err := net.Dial("tcp", k.to)
		if err != nil {
			a.Close()
			continue
		}
		if k.keep(b) {
			k.all.Go(func() { k.pass(a, b) })
			k.all.Go(func() { k.pass(b, a) })
		}
	}
}

// keep remembers a connection, and reports false if it came too late.
func (k *Blackhole) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		c.Close()
		return false
	}
	k.conns = append(k.conns, c)
	return true
}

// pass passes on what comes from one end, and its end.
func (k *Blackhole) pass(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if k.silent.Load() {
			if err != nil {
				return // and the other end isn't told
			}
			continue
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			to.Close()
			return
		}
	}
}
