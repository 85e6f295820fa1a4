//go:build !linux

package tcp

import "net"

// unpace would have a connection within a host sent at full speed: elsewhere no congestion control is known that paces.
func unpace(*net.TCPConn) {}
