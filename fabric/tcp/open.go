package tcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func init() {
	transport.Register("tcp", listenAt, func() fabric.Options { return new(options).table() })
}

// A card is a rank's data for all others before there are links.
type card struct {
	Version     int
	Host        string
	Addrs       []netip.AddrPort
	Token       []byte // the lowest rank's, with the job's secret if there is one, makes the key of the links
	TLS         bool
	Connections int
	Window      int
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
	e.mine = card{Version: version, Host: c.HostID, Token: make([]byte, tokenBytes), TLS: c.Security.TLS != nil}
	rand.Read(e.mine.Token)
	err := f.o.table().Set("tcp", c.Options)
	if err == nil && c.Size > 1 {
		f.listeners, err = listen(f.o, c.Rendezvous)
	}
	if err == nil {
		err = f.openDescriptors() // before the others are told that this rank is there
	}
	e.mine.Connections, e.mine.Window = f.o.connections, f.o.window
	e.mine.Addrs = published(f.listeners, f.o.advertise)
	if err == nil && e.mine.TLS && !c.Security.Authenticates() {
		err = c.Security.Check("") // says what is missing
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte {
	b, err := json.Marshal(e.mine)
	if err != nil {
		panic(err) // it's made of texts, numbers and addresses
	}
	return b
}

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
	known := make([]*card, len(cards))
	for r, b := range cards {
		if b == nil {
			continue
		}
		k := new(card)
		known[r] = k
		switch err := json.Unmarshal(b, k); {
		case err != nil:
			return nil, fmt.Errorf("tcp: the card of rank %d: %w", r, err)
		case k.Version != version || len(k.Token) != tokenBytes:
			return nil, fmt.Errorf("tcp: rank %d speaks protocol version %d; rank %d speaks %d",
				r, k.Version, f.rank, version)
		case k.TLS != e.mine.TLS:
			return nil, fmt.Errorf("tcp: TLS is on at one of the ranks %d and %d, and off at the other", r, f.rank)
		case k.Connections != e.mine.Connections:
			return nil, fmt.Errorf("tcp: option connections is %d at rank %d and %d at rank %d",
				k.Connections, r, e.mine.Connections, f.rank)
		case k.Window < 0 || len(k.Addrs) == 0 && f.size > 1:
			return nil, fmt.Errorf("tcp: the card of rank %d has window %d and %d addresses", r, k.Window, len(k.Addrs))
		}
	}
	f.join(known)
	e.joined = true
	f.start()
	return f, nil
}

// join makes the peers from their cards.
func (f *Fabric) join(cards []*card) {
	lowest := slices.IndexFunc(cards, func(k *card) bool { return k != nil })
	f.key = f.security.Secret.Derive("tcp link", cards[lowest].Token)
	sameHost, onHost, own := true, 0, cards[f.rank].Host
	for r, k := range cards {
		if f.near[r] = k != nil && k.Host == own; f.near[r] {
			onHost++
		} else {
			sameHost = false
		}
	}
	f.choosePolling(onHost)
	for r, k := range cards {
		if r == f.rank || k == nil {
			continue
		}
		// The loopback address first within a host, last between hosts: there it
		// only serves ranks that pretend to be on several.
		slices.SortStableFunc(k.Addrs, func(a, b netip.AddrPort) int {
			if x, y := a.Addr().IsLoopback(), b.Addr().IsLoopback(); x == y {
				return 0
			} else if x == f.near[r] {
				return -1
			}
			return 1
		})
		f.peers[r] = newPeer(f, r, k.Addrs, k.Window)
	}
	if sameHost && len(f.listeners) > 1 {
		// No peer connects over the network.
		for _, l := range f.listeners[1:] {
			l.Close()
		}
		f.listeners = f.listeners[:1]
	}
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
