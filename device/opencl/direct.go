package opencl

import (
	"runtime"
	"unsafe"

	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// The functions that every launch, copy or query calls are made without reflection. Pointers must point to the heap
// here, since these functions are called through variables. They are there before any init function.
var _ = direct()

func direct() bool {
	dl.Direct(release[abi.Queue])
	dl.Direct(release[abi.Event])
	dl.Direct(func(f dl.Func) abi.SettingArgument {
		return func(k abi.Kernel, i uint32, n uintptr, value unsafe.Pointer) abi.Result {
			r := f.Call(uintptr(k), uintptr(i), n, uintptr(value))
			runtime.KeepAlive(value)
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.SettingPointer {
		return func(k abi.Kernel, i uint32, p uintptr) abi.Result {
			return abi.Result(f.Call(uintptr(k), uintptr(i), p))
		}
	})
	dl.Direct(func(f dl.Func) abi.Running {
		return func(q abi.Queue, k abi.Kernel, dims uint32, offset, global, local *uintptr, n uint32,
			events, made *abi.Event) abi.Result {
			r := f.Call(uintptr(q), uintptr(k), uintptr(dims), word(offset), word(global), word(local), uintptr(n),
				word(events), word(made))
			runtime.KeepAlive([...]*uintptr{offset, global, local})
			runtime.KeepAlive([...]*abi.Event{events, made})
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.RunningCommands {
		return func(n uint32, q *abi.Queue, c abi.Commands, waits uint32, events, made *abi.Event) abi.Result {
			r := f.Call(uintptr(n), word(q), uintptr(c), uintptr(waits), word(events), word(made))
			runtime.KeepAlive(q)
			runtime.KeepAlive([...]*abi.Event{events, made})
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.CopyingShared {
		return func(q abi.Queue, wait uint32, dst, src, n uintptr, waits uint32, events, made *abi.Event) abi.Result {
			r := f.Call(uintptr(q), uintptr(wait), dst, src, n, uintptr(waits), word(events), word(made))
			runtime.KeepAlive([...]*abi.Event{events, made})
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.Waiting {
		return func(q abi.Queue, n uint32, events, made *abi.Event) abi.Result {
			r := f.Call(uintptr(q), uintptr(n), word(events), word(made))
			runtime.KeepAlive([...]*abi.Event{events, made})
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.Asking[abi.Event] {
		return func(e abi.Event, what uint32, n uintptr, value unsafe.Pointer, ret *uintptr) abi.Result {
			r := f.Call(uintptr(e), uintptr(what), n, uintptr(value), word(ret))
			runtime.KeepAlive(value)
			runtime.KeepAlive(ret)
			return abi.Result(r)
		}
	})
	return true
}

func word[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func release[T ~uintptr](f dl.Func) abi.Release[T] {
	return func(x T) abi.Result { return abi.Result(f.Call(uintptr(x))) }
}

// pinned calls f while what p points to stays where it is, though another Go pointer leads there.
func pinned(p *byte, f func()) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	f()
}
