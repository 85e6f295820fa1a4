package tcp

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/chorus-comms/chorus/internal/wire"
)

// A card is a rank's data for all others before there are links. Every rank of a world reads those of all: encoded, it
// begins with the version of the protocol, and reading it allocates nothing.
type card struct {
	tls         bool
	connections int
	window      int
	host        []byte
	token       []byte // the lowest rank's, with the job's secret if there is one, makes the key of the links
	addrs       []byte // fields, each an address in netip's binary form
}

func (k *card) encode() []byte {
	b := []byte{version, 0}
	if k.tls {
		b[1] = 1
	}
	b = wire.AppendUint(wire.AppendUint(b, uint64(k.connections)), uint64(k.window))
	b = wire.AppendField(wire.AppendField(b, k.host), k.token)
	return append(b, k.addrs...)
}

// encodeAddrs makes the addresses of a card.
func encodeAddrs(addrs []netip.AddrPort) (b []byte) {
	for _, a := range addrs {
		one, err := a.MarshalBinary()
		if err != nil {
			panic(err) // it never fails
		}
		b = wire.AppendField(b, one)
	}
	return b
}

// decode reads the card of a rank, and checks whether its links with rank own, whose card is mine, can be set up. The
// card's parts alias b.
func (k *card) decode(b []byte, mine *card, rank, own int) error {
	if len(b) < 2 || b[0] != version {
		theirs := 0
		if len(b) > 0 {
			theirs = int(b[0])
		}
		return fmt.Errorf("tcp: rank %d speaks protocol version %d; rank %d speaks %d", rank, theirs, own, version)
	}
	f := wire.ReadFields(b[2:])
	*k = card{tls: b[1] != 0, connections: int(f.Uint()), window: int(f.Uint()), host: f.Bytes(), token: f.Bytes()}
	k.addrs = f.Rest()
	addresses := 0
	for a := f; a.More(); addresses++ {
		var addr netip.AddrPort
		if err := addr.UnmarshalBinary(a.Bytes()); err != nil || !addr.IsValid() {
			return fmt.Errorf("tcp: the card of rank %d has a damaged address", rank)
		}
	}
	switch {
	case len(k.token) != tokenBytes:
		return fmt.Errorf("tcp: the card of rank %d is damaged", rank)
	case k.tls != mine.tls:
		return fmt.Errorf("tcp: TLS is on at one of the ranks %d and %d, and off at the other", rank, own)
	case k.connections != mine.connections:
		return fmt.Errorf("tcp: option connections is %d at rank %d and %d at rank %d", k.connections, rank,
			mine.connections, own)
	case k.window < 0 || addresses == 0 && rank != own:
		return fmt.Errorf("tcp: the card of rank %d has window %d and %d addresses", rank, k.window, addresses)
	}
	return nil
}

// addresses returns those of a card that decode has accepted, in the order in which a rank tries them. The loopback
// address comes first within a host, and last between hosts: there it only serves ranks that pretend to be on several.
func (k *card) addresses(near bool) (all []netip.AddrPort) {
	for f := wire.ReadFields(k.addrs); f.More(); {
		var a netip.AddrPort
		if a.UnmarshalBinary(f.Bytes()) == nil {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b netip.AddrPort) int {
		if x, y := a.Addr().IsLoopback(), b.Addr().IsLoopback(); x == y {
			return 0
		} else if x == near {
			return -1
		}
		return 1
	})
	return all
}

// near reports whether the card is that of a rank on a host.
func (k *card) near(host []byte) bool { return bytes.Equal(k.host, host) }
