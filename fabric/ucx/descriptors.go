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
	fds, err := openFDs(n)
	closeFDs(fds)
	return err
}

// openFDs opens n descriptors, or as many as the process can.
func openFDs(n int) ([]int, error) {
	fds := make([]int, 0, n)
	for range n {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fds, os.NewSyscallError("open", err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// reserve holds descriptors for one endpoint back, with which a process that has none left says so to a peer.
type reserve struct{ fds []int }

// keep takes the descriptors, unless the process lacks them.
func (r *reserve) keep() {
	if r.fds == nil {
		fds, err := openFDs(connectDescriptors)
		if err != nil {
			closeFDs(fds)
			return
		}
		r.fds = fds
	}
}

// release gives the descriptors back, and reports whether there were any.
func (r *reserve) release() bool {
	held := r.fds != nil
	closeFDs(r.fds)
	r.fds = nil
	return held
}
