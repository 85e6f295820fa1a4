//go:build !linux

package affinity

import (
	"errors"
	"runtime"
)

// Cores returns the numbers of the host's cores.
func Cores() []int {
	cores := make([]int, runtime.NumCPU())
	for i := range cores {
		cores[i] = i
	}
	return cores
}

// Pin says that threads can't be tied to cores here.
func Pin(thread int, cores ...int) error { return errors.New("tying a thread to a core needs Linux") }
