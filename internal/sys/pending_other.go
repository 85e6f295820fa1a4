//go:build !unix

package sys

// AcceptPending reports whether a client waits to be accepted, or may; it's known on Unix only.
func AcceptPending(listener any) bool { return true }
