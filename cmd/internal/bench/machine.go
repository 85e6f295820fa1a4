package bench

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kern"
)

// Machine is what a result was measured on: rank 0's, on rank 0.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`  // that the process may use
	Kernel  string `json:"kernel"` // the operating system's
	Arch    string `json:"arch"`
	Kernels string `json:"kernels"` // instruction set of the loops
	Go      string `json:"go"`
}

// ThisMachine describes the machine of this process.
func ThisMachine() Machine {
	m := Machine{CPU: sys.ReadCPUInfo().Model, Cores: runtime.NumCPU(), Arch: runtime.GOARCH, Kernels: kern.Level(),
		Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	return m
}
