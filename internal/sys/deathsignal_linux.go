package sys

import "syscall"

// SetDeathSignal has a process that is started with these attributes killed with the thread that starts it.
func SetDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
