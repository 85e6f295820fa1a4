//go:build !linux

// Package pacing has the kernel send at full speed where there is no network to spare.
package pacing

import "net"

// Off would have a connection within a host sent at full speed: elsewhere no congestion control is known that paces.
func Off(*net.TCPConn) {}
