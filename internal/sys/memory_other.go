//go:build !linux && !darwin

package sys

import "errors"

// HostMemory knows no way to ask this system.
func HostMemory() (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
