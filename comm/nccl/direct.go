package nccl

import (
	"runtime"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// The functions that enqueue operations are made without reflection. Memory that pointers point to is on the heap,
// since these are called through variables.
func init() {
	dl.Direct(func(f dl.Func) func() abi.Result { return func() abi.Result { return abi.Result(f.Call()) } })
	dl.Direct(func(f dl.Func) func(c abi.Comm, r *abi.Result) abi.Result {
		return func(c abi.Comm, r *abi.Result) abi.Result {
			result := f.Call(uintptr(c), uintptr(unsafe.Pointer(r)))
			runtime.KeepAlive(r)
			return abi.Result(result)
		}
	})
	dl.Direct(func(f dl.Func) abi.Reducing {
		return func(in, out uintptr, n uint64, dt abi.DataType, op abi.RedOp, c abi.Comm, s abi.Stream) abi.Result {
			return abi.Result(f.Call(in, out, uintptr(n), uintptr(dt), uintptr(op), uintptr(c), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Moving {
		return func(in, out uintptr, n uint64, dt abi.DataType, c abi.Comm, s abi.Stream) abi.Result {
			return abi.Result(f.Call(in, out, uintptr(n), uintptr(dt), uintptr(c), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Rooted {
		return func(in, out uintptr, n uint64, dt abi.DataType, root int32, c abi.Comm, s abi.Stream) abi.Result {
			return abi.Result(f.Call(in, out, uintptr(n), uintptr(dt), uintptr(root), uintptr(c), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.ReducingTo {
		return func(in, out uintptr, n uint64, dt abi.DataType, op abi.RedOp, root int32, c abi.Comm,
			s abi.Stream) abi.Result {
			return abi.Result(f.Call(in, out, uintptr(n), uintptr(dt), uintptr(op), uintptr(root), uintptr(c), uintptr(s)))
		}
	})
	dl.Direct(func(f dl.Func) abi.Message {
		return func(p uintptr, n uint64, dt abi.DataType, peer int32, c abi.Comm, s abi.Stream) abi.Result {
			return abi.Result(f.Call(p, uintptr(n), uintptr(dt), uintptr(peer), uintptr(c), uintptr(s)))
		}
	})
}
