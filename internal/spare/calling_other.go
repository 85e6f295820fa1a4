//go:build !unix

package spare

import "net"

// Calling reports whether somebody waits to be accepted, or may, which only Unix tells.
func Calling(net.Listener) bool { return true }
