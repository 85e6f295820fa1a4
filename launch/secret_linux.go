package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inMemory returns a file in memory that only this user can read; nil if it can't be had, or not be opened by its name.
func inMemory(name string, text []byte) *os.File {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		var again *os.File
		if again, err = os.Open(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)); err == nil {
			again.Close()
		}
	}
	if err != nil {
		f.Close()
		return nil
	}
	return f
}
