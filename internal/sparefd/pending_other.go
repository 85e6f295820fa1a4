//go:build !unix

package sparefd

import "net"

// Pending reports whether a client waits to be accepted, or may; it's known on Unix only.
func Pending(net.Listener) bool { return true }
