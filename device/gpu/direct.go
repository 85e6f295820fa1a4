package gpu

import (
	"runtime"
	"unsafe"

	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// The functions that an operation of a communicator calls, or that wait for its end, are made without reflection: it
// calls some twenty of them. So are those that enqueue a kernel, a copy or a fill, and functions of the same types.
func init() {
	dl.Direct(of[abi.Context])
	dl.Direct(of[abi.Event])
	dl.Direct(of[abi.Stream])
	dl.Direct(of[abi.Device])
	dl.Direct(ask[abi.Context])
	dl.Direct(ask[abi.Device])
	dl.Direct(ask[int32])
	dl.Direct(func(f dl.Func) abi.On[*int32] { return onto[int32](f) })
	dl.Direct(func(f dl.Func) abi.On[*abi.Context] { return onto[abi.Context](f) })
	dl.Direct(func(f dl.Func) abi.On[*abi.Device] { return onto[abi.Device](f) })
	dl.Direct(func(f dl.Func) abi.Waiting {
		return func(s abi.Stream, e abi.Event, flags uint32) abi.Result {
			return abi.Result(f.Call(uintptr(s), uintptr(e), uintptr(flags)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Recording {
		return func(e abi.Event, s abi.Stream) abi.Result { return abi.Result(f.Call(uintptr(e), uintptr(s))) }
	})
	dl.Direct(func(f dl.Func) abi.Asking {
		return func(data *uint64, attr int32, p uintptr) abi.Result {
			r := f.Call(uintptr(unsafe.Pointer(data)), uintptr(attr), p)
			runtime.KeepAlive(data)
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.AskingSeveral {
		return func(n uint32, attributes *int32, values *unsafe.Pointer, p uintptr) abi.Result {
			r := f.Call(uintptr(n), uintptr(unsafe.Pointer(attributes)), uintptr(unsafe.Pointer(values)), p)
			runtime.KeepAlive(attributes)
			runtime.KeepAlive(values)
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.Copying {
		return func(dst, src uintptr, n uint64, s abi.Stream) abi.Result {
			return abi.Result(f.Call(dst, src, uintptr(n), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.CopyingAs {
		return func(dst, src uintptr, n uint64, kind int32, s abi.Stream) abi.Result {
			return abi.Result(f.Call(dst, src, uintptr(n), uintptr(kind), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Filling {
		return func(p uintptr, value uint8, n uint64, s abi.Stream) abi.Result {
			return abi.Result(f.Call(p, uintptr(value), uintptr(n), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Launching {
		return func(k abi.Function, gx, gy, gz, bx, by, bz, shared uint32, s abi.Stream,
			args, extra *unsafe.Pointer) abi.Result {
			r := f.Call(uintptr(k), uintptr(gx), uintptr(gy), uintptr(gz), uintptr(bx), uintptr(by), uintptr(bz),
				uintptr(shared), uintptr(s), uintptr(unsafe.Pointer(args)), uintptr(unsafe.Pointer(extra)))
			runtime.KeepAlive(args)
			runtime.KeepAlive(extra)
			return abi.Result(r)
		}
	})
	dl.Direct(func(f dl.Func) abi.Running {
		return func(x abi.Exec, s abi.Stream) abi.Result { return abi.Result(f.Call(uintptr(x), uintptr(s))) }
	})
}

// Pointers must point to the heap here, since these functions are called through variables.

func of[T ~uintptr | ~int32](f dl.Func) abi.Of[T] {
	return func(x T) abi.Result { return abi.Result(f.Call(uintptr(x))) }
}

func ask[T any](f dl.Func) abi.Ask[T] {
	return func(x *T) abi.Result {
		r := f.Call(uintptr(unsafe.Pointer(x)))
		runtime.KeepAlive(x)
		return abi.Result(r)
	}
}

func onto[T any](f dl.Func) abi.On[*T] {
	return func(s abi.Stream, x *T) abi.Result {
		r := f.Call(uintptr(s), uintptr(unsafe.Pointer(x)))
		runtime.KeepAlive(x)
		return abi.Result(r)
	}
}
