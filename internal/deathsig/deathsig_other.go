//go:build !linux

package deathsig

import "syscall"

// Set does nothing.
func Set(*syscall.SysProcAttr) {}
