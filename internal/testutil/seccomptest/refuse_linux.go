package seccomptest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var errnos = map[string]unix.Errno{"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS, "EACCES": unix.EACCES}

func refuse(list []string) error {
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	// Where seccomp_data has the number, and the lower half of the second argument, in bytes.
	const number, command = 0, 24
	var program []unix.SockFilter
	for _, item := range list {
		name, errno, _ := strings.Cut(item, "=")
		c, err := find(name)
		if err != nil {
			return err
		}
		if errnos[errno] == 0 {
			return fmt.Errorf("no error %q", errno)
		}
		program = append(program, unix.SockFilter{Code: load, K: number})
		if c.command == 0 {
			program = append(program, unix.SockFilter{Code: equal, Jf: 1, K: uint32(c.number)})
		} else {
			program = append(program, unix.SockFilter{Code: equal, Jf: 3, K: uint32(c.number)},
				unix.SockFilter{Code: load, K: command}, unix.SockFilter{Code: equal, Jf: 1, K: c.command})
		}
		program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K,
			K: unix.SECCOMP_RET_ERRNO | uint32(errnos[errno])})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // whose filter it is, until exec makes it the process's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0,
		0); err != nil {
		return fmt.Errorf("install the filter: %w", err)
	}
	return unix.Exec(self, os.Args, os.Environ())
}

func find(name string) (call, error) {
	for _, c := range calls {
		if c.name == name {
			return c, nil
		}
	}
	return call{}, fmt.Errorf("no call %q among %q", name, Calls())
}

// calls are those that Chorus makes itself, but for those that Go itself can't be without, and others that such
// programs are refused, in alphabetical order.
var calls = []call{
	{"fallocate", unix.SYS_FALLOCATE, 0},
	{"fcntl(F_ADD_SEALS)", unix.SYS_FCNTL, unix.F_ADD_SEALS},
	{"fcntl(F_DUPFD_CLOEXEC)", unix.SYS_FCNTL, unix.F_DUPFD_CLOEXEC},
	{"ftruncate", unix.SYS_FTRUNCATE, 0},
	{"getcpu", unix.SYS_GETCPU, 0},
	{"getrandom", unix.SYS_GETRANDOM, 0},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, 0},
	{"madvise", unix.SYS_MADVISE, 0},
	{"membarrier", unix.SYS_MEMBARRIER, 0},
	{"memfd_create", unix.SYS_MEMFD_CREATE, 0},
	{"mlock", unix.SYS_MLOCK, 0},
	{"pidfd_open", unix.SYS_PIDFD_OPEN, 0},
	{"ppoll", unix.SYS_PPOLL, 0},
	{"prctl", unix.SYS_PRCTL, 0},
	{"process_vm_readv", unix.SYS_PROCESS_VM_READV, 0},
	{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY, 0},
	{"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, 0},
	{"sched_yield", unix.SYS_SCHED_YIELD, 0},
	{"sendmsg", unix.SYS_SENDMSG, 0},
	{"setsockopt", unix.SYS_SETSOCKOPT, 0},
	{"socketpair", unix.SYS_SOCKETPAIR, 0},
	{"sysinfo", unix.SYS_SYSINFO, 0},
	{"uname", unix.SYS_UNAME, 0},
	{"userfaultfd", unix.SYS_USERFAULTFD, 0},
}
