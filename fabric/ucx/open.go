package ucx

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
	"github.com/chorus-comms/chorus/secure"
)

// Name is the name under which the fabric is registered.
const Name = "ucx"

func init() {
	transport.Register(Name, listen, func() fabric.Options { return new(options).table() })
}

const (
	version    = 2 // of the protocol
	tokenBytes = 16
)

// A card is a rank's data for all others before there are links.
type card struct {
	Version int
	Host    string
	Address []byte // of the worker
	Token   []byte // the lowest rank's, with the job's secret if there is one, makes the keys of frames
	Errors  string
	Window  int
}

// endpoint is a rank that has not joined the others yet.
type endpoint struct {
	c      fabric.Config
	f      *Fabric
	mine   card
	joined bool
}

func listen(_ context.Context, c fabric.Config) (transport.Endpoint, error) {
	f := &Fabric{rank: c.Rank, size: c.Size, timeout: c.Timeout, peers: make([]*peer, c.Size), o: defaults()}
	if err := f.o.table().Set(Name, c.Options); err != nil {
		return nil, err
	}
	set, err := f.o.settings(c)
	if err != nil {
		return nil, err
	}
	if f.w, err = newWorker(c.Size, set); err != nil {
		return nil, fmt.Errorf("ucx: %w", err)
	}
	e := &endpoint{c: c, f: f}
	e.mine = card{Version: version, Host: c.HostID, Token: make([]byte, tokenBytes), Errors: f.o.errors,
		Window: f.o.window}
	rand.Read(e.mine.Token)
	if e.mine.Address, err = f.w.address(); err != nil {
		f.w.close()
		return nil, fmt.Errorf("ucx: %w", err)
	}
	return e, nil
}

// errPlain says why there's no fabric with TLS.
var errPlain = errors.New("ucx: CHORUS_TLS is on, and UCX doesn't encrypt what it sends: use fabric tcp or auto, or " +
	"a network that is protected otherwise, with CHORUS_TLS off")

// settings are UCX's own: the option's, and those that the job's security demands.
func (o *options) settings(c fabric.Config) (settings, error) {
	if c.Security.TLS != nil {
		return nil, errPlain
	}
	set := settings{}
	if o.transports != "" {
		set["TLS"] = o.transports
	}
	if o.heartbeat > 0 {
		// UCX itself asks peers whether they're there, where their transport doesn't tell.
		set["KEEPALIVE_INTERVAL"] = fmt.Sprintf("%dus", max(o.heartbeat.Microseconds()/beats, 1000))
	}
	devices := cmp.Or(o.devices, os.Getenv("UCX_NET_DEVICES"))
	lo := loopback()
	host, _, err := net.SplitHostPort(c.Rendezvous)
	if err != nil {
		host = c.Rendezvous
	}
	alone := host == "" || secure.Loopback(host)
	switch {
	case devices != "":
		// UCX listens on them: without a secret that's for the loopback only.
		if devices != lo && alone {
			host = devices
		}
		if err := c.Security.Check(host); err != nil && devices != lo {
			return nil, fmt.Errorf("ucx: devices %s: %w", devices, err)
		}
		set["NET_DEVICES"] = devices
	case alone && lo != "" && (host != "" || !mayListen(c.Security)):
		set["NET_DEVICES"] = lo // all ranks are on this host, or must be
	default:
		if err := c.Security.Check(host); err != nil {
			return nil, fmt.Errorf("ucx: %w", err)
		}
	}
	return set, nil
}

// mayListen reports whether ranks may listen on any address.
func mayListen(p secure.Policy) bool { return p.Authenticates() || p.Insecure }

// loopback is the name of the loopback device, "" if there is none.
func loopback() string {
	all, _ := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 && i.Flags&net.FlagUp != 0 {
			return i.Name
		}
	}
	return ""
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte {
	b, err := json.Marshal(e.mine)
	if err != nil {
		panic(err) // it's made of texts, numbers and bytes
	}
	return b
}

// Close implements transport.Endpoint.
func (e *endpoint) Close() error {
	if !e.joined {
		e.f.w.close()
	}
	return nil
}

// Join implements transport.Endpoint.
func (e *endpoint) Join(_ context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	f := e.f
	f.Base = transport.NewBase(Name, f.rank, f.size, m, selfBuffer)
	known := make([]*card, len(cards))
	for r, b := range cards {
		if b == nil {
			continue
		}
		k := new(card)
		known[r] = k
		switch err := json.Unmarshal(b, k); {
		case err != nil:
			return nil, fmt.Errorf("ucx: the card of rank %d: %w", r, err)
		case k.Version != version || len(k.Token) != tokenBytes || len(k.Address) == 0:
			return nil, fmt.Errorf("ucx: rank %d speaks protocol version %d; rank %d speaks %d", r, k.Version, f.rank,
				version)
		case k.Errors != e.mine.Errors:
			return nil, fmt.Errorf("ucx: option errors is %s at rank %d and %s at rank %d", k.Errors, r, e.mine.Errors,
				f.rank)
		case k.Window < 0:
			return nil, fmt.Errorf("ucx: the card of rank %d has window %d", r, k.Window)
		}
	}
	lowest := slices.IndexFunc(known, func(k *card) bool { return k != nil })
	key := e.c.Security.Secret.Derive("ucx frames", known[lowest].Token)
	onHost := 0
	for r, k := range known {
		if k == nil {
			continue
		}
		if k.Host == e.mine.Host {
			onHost++
		}
		if r != f.rank {
			f.peers[r] = newPeer(f, r, k, pairKey(key, f.rank, r), pairKey(key, r, f.rank))
		}
	}
	f.spinFirst = onHost <= e.c.HostCores()
	var seed [32]byte
	rand.Read(seed[:])
	f.draw = mrand.NewChaCha8(seed)
	if err := f.start(); err != nil {
		return nil, err
	}
	e.joined = true
	return f, nil
}

// pairKey is what the frames of one rank for another begin with.
func pairKey(key secure.Secret, from, to int) uint64 {
	seal := key.Seal(fmt.Sprintf("%d to %d", from, to), nil)
	return binary.LittleEndian.Uint64(seal[len(seal)-8:]) | 1
}

// peerNumbers are the peers by the numbers that UCX knows them by.
var peerNumbers struct {
	sync.Mutex
	last uintptr
	all  sync.Map // *peer
}

func (p *peer) register() {
	peerNumbers.Lock()
	defer peerNumbers.Unlock()
	peerNumbers.last++
	p.number = peerNumbers.last
	peerNumbers.all.Store(p.number, p)
}

// endpointFailed is called by UCX on a goroutine that makes progress, which therefore holds the fabric's lock.
func endpointFailed(number, _, status uintptr) {
	if p, ok := peerNumbers.all.Load(number); ok {
		p.(*peer).report(abi.StatusOf(status))
	}
}

// statusError says what UCX reports of the peer.
func (p *peer) statusError(s abi.Status) error {
	switch {
	case p.unable != nil:
		return p.unable
	case !p.met.Load() && s != abi.Unreachable:
		// It had left before this rank had a word from it, or has died.
		return fmt.Errorf("%w: %w", fabric.ErrClosing, s)
	}
	return s
}
