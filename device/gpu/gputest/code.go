//go:build linux

package gputest

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// code is an image, and its modules on the devices that have needed it.
type code struct {
	image   []byte
	modules map[int]abi.Module
}

// kernel is one without a context: a launch takes that of its stream.
type kernel struct {
	of        *code
	name      string
	functions map[int]abi.Function // those that were launched, by their devices
}

// firstKernel is more than all handles of functions of modules.
const firstKernel abi.Function = 1 << 60

// codes are what the library has of both.
type codes struct {
	mu      sync.Mutex
	all     map[abi.Code]*code
	last    abi.Code
	kernels []*kernel
}

// codeTable fills in CUDA's functions of code without contexts.
func (l *Library) codeTable(t *abi.Table) {
	x := &l.codes
	t.CodeLoad = func(c *abi.Code, image *byte, _ *int32, _ *uintptr, _ uint32, _ *int32, _ *uintptr,
		_ uint32) abi.Result {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.last++
		*c = x.last
		x.all[x.last] = &code{append([]byte(unix.BytePtrToString(image)), 0), map[int]abi.Module{}}
		return abi.Success
	}
	t.CodeUnload = func(c abi.Code) abi.Result {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.all[c] == nil {
			return abi.InvalidHandle
		}
		for _, m := range x.all[c].modules {
			if err := l.driver.ModuleUnload(driver.ModuleHandle(m)); err != nil {
				return result(err)
			}
		}
		delete(x.all, c)
		return abi.Success
	}
	t.CodeModule = func(m *abi.Module, c abi.Code) abi.Result {
		return l.on(func(dev int) abi.Result {
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.all[c] == nil {
				return abi.InvalidHandle
			}
			var r abi.Result
			if *m = x.all[c].modules[dev]; *m == 0 {
				if r = l.moduleLoad(m, &x.all[c].image[0]); r == abi.Success {
					x.all[c].modules[dev] = *m
				}
			}
			return r
		})
	}
	t.CodeKernel = func(f *abi.Function, c abi.Code, name *byte) abi.Result {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.all[c] == nil {
			return abi.InvalidHandle
		}
		*f = firstKernel + abi.Function(len(x.kernels))
		x.kernels = append(x.kernels, &kernel{x.all[c], unix.BytePtrToString(name), map[int]abi.Function{}})
		return abi.Success
	}
	t.KernelSet = func(attr, v int32, f abi.Function, _ abi.Device) abi.Result { return t.FunctionSet(f, attr, v) }
}

// function is what a launch on a stream runs, where f is a kernel without a context.
func (x *codes) function(l *Library, f *abi.Function, s abi.Stream) abi.Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.kernels[*f-firstKernel]
	var dev int
	for dev = range k.of.modules { // if there is one, the driver finds streams of other devices
	}
	if len(k.of.modules) > 1 {
		var err error
		if dev, err = l.owner(s); err != nil {
			return result(err)
		}
	}
	if h, ok := k.functions[dev]; ok {
		*f = h
		return abi.Success
	}
	h, err := l.driver.ModuleFunction(driver.ModuleHandle(k.of.modules[dev]), k.name)
	if err == nil {
		k.functions[dev] = abi.Function(h)
	}
	return give(f, h, err)
}
