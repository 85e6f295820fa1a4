//go:build !linux

package launch

import "strconv"

// endLeftovers would kill the processes that ranks have started and that have left their process groups: which they are
// is seen in /proc, which Linux has.
func endLeftovers(scratch string, adopted func(pid int) bool) {}

func (s *spawner) reapAdopted() {}

// identity is the number of a process: when it began isn't known here.
func identity(pid int) string { return strconv.Itoa(pid) }

// parentOf returns 0: the parents of other processes aren't known here.
func parentOf(int) int { return 0 }
