package ucx

import (
	"os"

	"golang.org/x/sys/unix"
)

// UCX ends the process at some failures to get a descriptor. So they're tried for before it's called.
const (
	openDescriptors    = 64 // for a context and a worker
	connectDescriptors = 8  // for an endpoint
)

// spare reports an error unless the process can open n more descriptors.
func spare(n int) error {
	fds := make([]int, 0, openDescriptors)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range n {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("open", err)
		}
		fds = append(fds, fd)
	}
	return nil
}
