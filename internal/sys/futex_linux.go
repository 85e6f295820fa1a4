//go:build !chorus_portable

package sys

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FutexWait sleeps while *addr == v, at most d. It may return early. The word may be shared between processes.
//
// A loop over it and [Yield] never keeps the garbage collector from stopping its goroutine: FutexWait tells the
// scheduler that it blocks, and Yield, which doesn't, passes a point at which the goroutine can be stopped.
func FutexWait(addr *uint32, v uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), 0, uintptr(v), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWake wakes all threads that sleep on addr.
func FutexWake(addr *uint32) {
	unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), 1, 1<<30)
}

// Yield gives the core to another process. The goroutine keeps its processor, so
// other goroutines run only after runtime.Gosched.
func Yield() {
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	safepoint()
}

// safepoint has a stack frame, so that its prologue checks for preemption; a raw
// system call does not.
//
//go:noinline
func safepoint() {
	var b [128]byte
	touch(&b)
}

//go:noinline
func touch(b *[128]byte) { b[0] = 1; runtime.KeepAlive(b) }
