//go:build linux

package nccltest

import (
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
)

// current is the calling thread's device.
func (l *Library) current() int {
	if l.opts.Current != nil {
		if dev, ok := l.opts.Current(); ok {
			return dev
		}
	}
	if d, ok := l.opts.Driver.(interface{ Current() int }); ok {
		return d.Current()
	}
	return 0
}

func (l *Library) memAlloc(p *uintptr, bytes uint64) abi.Result {
	if r := l.fail("ncclMemAlloc", -1); r != abi.Success {
		return r
	}
	got, err := l.opts.Driver.Malloc(l.current(), int(bytes))
	if err != nil {
		return l.wrong(abi.UnhandledCudaError, "ncclMemAlloc: %v", err)
	}
	*p = uintptr(got)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given[*p] = bytes
	return abi.Success
}

func (l *Library) memFree(p uintptr) abi.Result {
	if r := l.fail("ncclMemFree", -1); r != abi.Success {
		return r
	}
	if c := l.windowOn(p); c != nil {
		return l.wrong(abi.InvalidUsage, "ncclMemFree: rank %d has a window of %#x", c.rank, p)
	}
	l.mu.Lock()
	delete(l.given, p)
	l.mu.Unlock()
	if err := l.opts.Driver.Free(l.current(), device.Ptr(p)); err != nil {
		return l.wrong(abi.InvalidArgument, "ncclMemFree: %v", err)
	}
	return abi.Success
}

// gave tells whether memory lies in what ncclMemAlloc has given out.
func (l *Library) gave(p uintptr, bytes uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, size := range l.given {
		if at <= p && p+uintptr(bytes) <= at+uintptr(size) {
			return true
		}
	}
	return false
}

// windowOn is a communicator with a window of memory that ncclMemAlloc has given out; nil if there's none.
func (l *Library) windowOn(p uintptr) *communicator {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.comms {
		if c.windows.cover(p, p+uintptr(l.given[p])) {
			return c
		}
	}
	return nil
}

// register notes memory, which is all that there is to it here.
func (l *Library) register(h abi.Comm, p uintptr, bytes uint64, handle *uintptr) abi.Result {
	return l.with("ncclCommRegister", h, func(*communicator) abi.Result {
		if _, err := l.kernels.View(device.Ptr(p), int(bytes)); err != nil {
			return l.wrong(abi.InvalidArgument, "ncclCommRegister: %v", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next++
		*handle = l.next
		l.regs[l.next] = p
		return abi.Success
	})
}

func (l *Library) deregister(h abi.Comm, handle uintptr) abi.Result {
	return l.with("ncclCommDeregister", h, func(*communicator) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, ok := l.regs[handle]; !ok {
			return abi.InvalidArgument
		}
		delete(l.regs, handle)
		return abi.Success
	})
}
