//go:build !linux

package launch

// endLeftovers would kill the processes that ranks have started and that have left their process groups: who they are
// is seen in /proc, which Linux has.
func endLeftovers(scratch string, adopted func(pid int) bool) {}

func (s *spawner) reapAdopted() {}
