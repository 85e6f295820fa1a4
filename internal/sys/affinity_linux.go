package sys

import "golang.org/x/sys/unix"

// threadCPUs returns the processors that the calling thread may use; nil if the kernel doesn't say.
func threadCPUs() (cpus CPUSet) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for n := range len(set) * 64 {
		if set.IsSet(n) {
			cpus = append(cpus, n)
		}
	}
	return cpus
}

func pinThread(thread int, cpus CPUSet) error {
	var set unix.CPUSet
	for _, n := range cpus {
		set.Set(n)
	}
	return unix.SchedSetaffinity(thread, &set)
}
