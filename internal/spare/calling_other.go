//go:build !unix

package spare

import "net"

// Calling reports whether a client waits to be accepted, or may; it's known on Unix only.
func Calling(net.Listener) bool { return true }
