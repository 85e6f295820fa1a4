package sys

import "syscall"

// hasAccessList reports whether a file has a list of users and groups besides its mode.
func hasAccessList(path string) bool {
	n, err := syscall.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}
