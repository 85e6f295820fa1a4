//go:build !linux

package sys

import "syscall"

// DisablePacing would have a connection within a host sent at full speed: elsewhere no congestion control is known that
// paces.
func DisablePacing(syscall.Conn) {}
