package sys

import "golang.org/x/sys/unix"

// HostMemory asks the kernel how many bytes of memory are free, not even used to cache files, and how many there are in
// total.
func HostMemory() (free, total int64, err error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0, 0, err
	}
	return int64(uint64(si.Freeram) * uint64(si.Unit)), int64(uint64(si.Totalram) * uint64(si.Unit)), nil
}
