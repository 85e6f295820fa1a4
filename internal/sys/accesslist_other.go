//go:build unix && !linux

package sys

// hasAccessList reports whether a file may have a list of users and groups besides its mode.
func hasAccessList(path string) bool { return true }
