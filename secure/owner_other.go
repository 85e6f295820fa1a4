//go:build !linux

package secure

import (
	"errors"
	"net/netip"
)

// tcpOwner would tell whose a TCP socket of this host is.
func tcpOwner(netip.AddrPort, netip.AddrPort) (uid int, err error) {
	return 0, errors.New("this system doesn't tell whose a TCP connection is; Linux does")
}
