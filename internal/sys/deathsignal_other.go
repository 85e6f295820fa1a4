//go:build !linux

package sys

import "syscall"

// SetDeathSignal does nothing: a program that must not leave processes behind ensures that by other means, as package
// launch does by its guard.
func SetDeathSignal(*syscall.SysProcAttr) {}
