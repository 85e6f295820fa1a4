//go:build !linux

package sys

import (
	"errors"
	"runtime"
)

// threadCPUs returns the host's processors.
func threadCPUs() CPUSet {
	cpus := make(CPUSet, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

func pinThread(int, CPUSet) error { return errors.New("binding a thread to processors needs Linux") }
