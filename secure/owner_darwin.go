package secure

import (
	"os"

	"golang.org/x/sys/unix"
)

// credentials asks the kernel for the user and the process at the other end of a Unix connection.
func credentials(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt", err)
	}
	pid, _ = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return int(cred.Uid), pid, nil
}
