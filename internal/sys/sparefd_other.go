//go:build !linux || chorus_portable

package sys

import "os"

// openSpare takes a descriptor that every system has.
func openSpare() (*os.File, error) { return os.Open(os.DevNull) }
