package sys

import "golang.org/x/sys/unix"

// cpuModel asks the kernel, which has no /proc.
func cpuModel() string {
	if name, err := unix.Sysctl("machdep.cpu.brand_string"); err == nil && name != "" {
		return name
	}
	return "unknown"
}
