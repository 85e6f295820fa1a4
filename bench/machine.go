package bench

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

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
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Arch: runtime.GOARCH, Kernels: kern.Level(), Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = cpuModel(string(info))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// cpuModel finds the processor's name in the text of /proc/cpuinfo. Kernels for arm64 give only numbers.
func cpuModel(info string) string {
	for _, key := range []string{"model name", "CPU part"} {
		for line := range strings.Lines(info) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(v)
			}
		}
	}
	return "unknown"
}
