//go:build linux

package ncclsim

import (
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
)

// current is the calling thread's device, as the driver knows it.
func (l *Library) current() int {
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
	return abi.Success
}

func (l *Library) memFree(p uintptr) abi.Result {
	if r := l.fail("ncclMemFree", -1); r != abi.Success {
		return r
	}
	if err := l.opts.Driver.Free(l.current(), device.Ptr(p)); err != nil {
		return l.wrong(abi.InvalidArgument, "ncclMemFree: %v", err)
	}
	return abi.Success
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
