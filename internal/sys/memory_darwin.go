package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// HostMemory asks the kernel how many bytes of memory are free, not even used to cache files, and how many there are in
// total.
func HostMemory() (free, total int64, err error) {
	size, err1 := unix.SysctlUint64("hw.memsize")
	pages, err2 := unix.SysctlUint32("vm.page_free_count")
	return int64(pages) * int64(os.Getpagesize()), int64(size), errors.Join(err1, err2)
}
