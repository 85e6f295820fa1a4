package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func init() {
	transport.Register("tcp", listenAt, func() fabric.Options { return new(options).table() })
}

// endpoint is a rank that has not joined the others yet.
type endpoint struct {
	f      *Fabric
	mine   card
	joined bool
}

// listenAt makes the fabric of a rank, which accepts connections but doesn't know its peers yet.
func listenAt(_ context.Context, c fabric.Config) (transport.Endpoint, error) {
	f := newFabric(c)
	e := &endpoint{f: f}
	e.mine = card{host: []byte(c.HostID), token: make([]byte, tokenBytes), tls: c.Security.TLS != nil}
	rand.Read(e.mine.token)
	err := f.o.table().Set("tcp", c.Options)
	if err == nil && c.Size > 1 {
		f.listeners, err = listen(f.o, c.Rendezvous)
	}
	if err == nil {
		err = f.openDescriptors() // before the others are told that this rank is there
	}
	e.mine.connections, e.mine.window = f.o.connections, f.o.window
	e.mine.addrs = encodeAddrs(published(f.listeners, f.o.advertise))
	if err == nil && e.mine.tls && !c.Security.Authenticates() {
		err = c.Security.Check("") // says what is missing
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte { return e.mine.encode() }

// Close implements transport.Endpoint.
func (e *endpoint) Close() error {
	if !e.joined {
		e.f.closeListeners()
		e.f.closePollers()
		e.f.spare.Close()
	}
	return nil
}

// Join implements transport.Endpoint.
func (e *endpoint) Join(_ context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	f := e.f
	f.Base = transport.NewBase("tcp", f.rank, f.size, m, selfBuffer)
	sameHost, onHost := true, 0
	for r, b := range cards {
		var k card
		if b == nil {
			sameHost = false
			continue
		}
		if err := k.decode(b, &e.mine, r, f.rank); err != nil {
			return nil, err
		}
		if f.key.IsZero() {
			f.key = f.security.Secret.Derive("tcp link", k.token)
		}
		if k.near(e.mine.host) {
			onHost++
		} else {
			sameHost = false
		}
	}
	f.choosePolling(onHost)
	f.mine, f.cards = e.mine, cards
	f.peers.Init(f.size, f.newPeer)
	if sameHost && len(f.listeners) > 1 {
		// No peer connects over the network.
		for _, l := range f.listeners[1:] {
			l.Close()
		}
		f.listeners = f.listeners[:1]
	}
	e.joined = true
	f.start()
	return f, nil
}

// openDescriptors opens the descriptors that this rank needs for itself: those of as many pollers as there may be, and
// a spare one.
func (f *Fabric) openDescriptors() error {
	n := 1
	if runtime.NumCPU() > 1 {
		n = f.o.connections
	}
	for range n {
		k, err := newPoller(f)
		if err != nil {
			return fmt.Errorf("tcp: watching connections: %w", err)
		}
		f.pollers = append(f.pollers, k)
	}
	if f.size == 1 {
		return nil
	}
	if err := f.spare.Keep(); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	return nil
}

// choosePolling decides how connections are polled, and so how many pollers stay: one, or with spare cores one for each
// data connection.
func (f *Fabric) choosePolling(onHost int) {
	f.spinFirst = onHost <= f.cores
	f.spareCores = 2*onHost <= runtime.NumCPU()
	f.procs = int32(runtime.GOMAXPROCS(0))
	if f.spareCores {
		return
	}
	for len(f.pollers) > 1 {
		last := len(f.pollers) - 1
		f.pollers[last].close()
		f.pollers = f.pollers[:last]
	}
}
