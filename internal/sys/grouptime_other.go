//go:build !linux

package sys

import (
	"errors"
	"time"
)

// GroupTime is the processor time that the processes of a group have used, which only Linux tells.
func GroupTime(group int) (time.Duration, error) { return 0, errors.ErrUnsupported }
