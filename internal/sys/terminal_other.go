//go:build !linux && !darwin

package sys

// IsTerminal reports whether a descriptor is a terminal's, which isn't known here.
func IsTerminal(fd int) bool { return false }
