package shm

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// across reads the memory of other processes.
type across struct {
	local  [1]unix.Iovec
	remote [1]unix.RemoteIovec
}

// read copies n bytes at addr of another process.
func (a *across) read(pid int, dst unsafe.Pointer, addr uint64, n int) error {
	for done := 0; done < n; {
		a.local[0].Base = (*byte)(unsafe.Add(dst, done))
		a.local[0].SetLen(n - done)
		a.remote[0] = unix.RemoteIovec{Base: uintptr(addr) + uintptr(done), Len: n - done}
		k, err := unix.ProcessVMReadv(pid, a.local[:], a.remote[:], 0)
		a.local[0].Base = nil
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("shm: read memory of process %d: %w", pid, err)
		case k <= 0:
			return fmt.Errorf("shm: read memory of process %d: nothing was read", pid)
		}
		done += max(k, 0)
	}
	return nil
}
