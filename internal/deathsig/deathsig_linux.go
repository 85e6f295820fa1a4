package deathsig

import "syscall"

// Set has a process that is started with these attributes killed with the thread that starts it.
func Set(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
