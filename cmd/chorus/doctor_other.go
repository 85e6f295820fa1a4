//go:build !linux

package main

import "errors"

var errNeedsLinux = errors.New("needs Linux")

func tryHugeMemoryFile(int64) error { return errNeedsLinux }

func copyProbeWord(int, uintptr) error { return errNeedsLinux }
