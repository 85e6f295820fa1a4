//go:build !linux && !darwin

package meminfo

import "errors"

// Read knows no way to ask this system.
func Read() (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
