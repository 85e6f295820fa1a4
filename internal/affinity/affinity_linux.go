package affinity

import "golang.org/x/sys/unix"

// Cores returns the numbers of the cores that the calling thread may use, ascending; nil if the kernel doesn't tell.
func Cores() (cores []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for core := range len(set) * 64 {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}

// Pin has a thread, 0 for the calling one, use no cores but these.
func Pin(thread int, cores ...int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	return unix.SchedSetaffinity(thread, &set)
}
