package cpuinfo

import "golang.org/x/sys/unix"

// model asks the kernel, which has no /proc.
func model() string {
	if name, err := unix.Sysctl("machdep.cpu.brand_string"); err == nil && name != "" {
		return name
	}
	return "unknown"
}
