package gloo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// addressBytes is the size of an address on the wire: a struct sockaddr_storage, and a number.
const addressBytes = 136

// The address families of Linux, which are on the wire.
const (
	inet  = 2
	inet6 = 10
)

// address is where a rank listens.
type address struct {
	at  netip.AddrPort
	seq int64 // which pair it's for; -1: it's for all
}

// append appends the address as it's on the wire.
func (a address) append(b []byte) []byte {
	var w [addressBytes]byte
	binary.BigEndian.PutUint16(w[2:], a.at.Port())
	if ip := a.at.Addr().Unmap(); ip.Is4() {
		binary.LittleEndian.PutUint16(w[:], inet)
		copy(w[4:], ip.AsSlice())
	} else {
		binary.LittleEndian.PutUint16(w[:], inet6)
		copy(w[8:], ip.AsSlice())
	}
	binary.LittleEndian.PutUint64(w[addressBytes-8:], uint64(a.seq))
	return append(b, w[:]...)
}

// parseAddress reads an address. The bytes behind the fields of its family are not initialized.
func parseAddress(b []byte) (a address, err error) {
	if len(b) != addressBytes {
		return a, fmt.Errorf("an address of %d bytes, not %d", len(b), addressBytes)
	}
	var ip netip.Addr
	switch family := binary.LittleEndian.Uint16(b); family {
	case inet:
		ip = netip.AddrFrom4([4]byte(b[4:]))
	case inet6:
		ip = netip.AddrFrom16([16]byte(b[8:]))
	default:
		return a, fmt.Errorf("an address of family %d", family)
	}
	port := binary.BigEndian.Uint16(b[2:])
	if port == 0 {
		return a, errors.New("an address without a port")
	}
	return address{netip.AddrPortFrom(ip, port), int64(binary.LittleEndian.Uint64(b[addressBytes-8:]))}, nil
}

// dials reports whether who listens at a connects to who listens at b: the greater address does. Ports are compared as
// they lie in memory.
func (a address) dials(b address) bool {
	if c := bytes.Compare(a.at.Addr().Unmap().AsSlice(), b.at.Addr().Unmap().AsSlice()); c != 0 {
		return c > 0
	}
	swap := func(p uint16) uint16 { return p<<8 | p>>8 }
	return swap(a.at.Port()) > swap(b.at.Port())
}
