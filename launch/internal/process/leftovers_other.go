//go:build !linux

package process

import "strconv"

// EndLeftovers would kill the processes that ranks have started and that have left their process groups: which they are
// is seen in /proc, which Linux has.
func EndLeftovers(scratch string, adopted func(pid int) bool) {}

func (s *Spawner) reapAdopted() {}

// Identity is the number of a process: when it began isn't known here.
func Identity(pid int) string { return strconv.Itoa(pid) }

// ParentOf returns 0: the parents of other processes aren't known here.
func ParentOf(int) int { return 0 }
