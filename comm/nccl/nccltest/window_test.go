//go:build linux

package nccltest_test

import (
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
)

// Windows are of memory of ncclMemAlloc, symmetric, and of the same size on all ranks, which register them in the same
// order. They end before their memory and their communicator.
func TestWindowsAreStrict(t *testing.T) {
	rt, lib := standIn(t)
	var id abi.UniqueID
	if r := lib.GetUniqueID(&id); r != abi.Success {
		t.Fatal(r)
	}
	const small, large = 1 << 12, 1 << 13
	var wg sync.WaitGroup
	for rank := range int32(2) {
		wg.Go(func() {
			is := func(what string, got, want abi.Result) {
				if got != want {
					t.Errorf("rank %d: %s: %v, not %v", rank, what, got, want)
				}
			}
			var c abi.Comm
			is("ncclCommInitRank", lib.CommInitRank(&c, 2, id, rank), abi.Success)
			var p [2]uintptr
			var w [2]abi.Window
			is("ncclMemAlloc", lib.MemAlloc(&p[0], small), abi.Success)
			is("ncclMemAlloc", lib.MemAlloc(&p[1], large), abi.Success)
			other, err := rt.Driver().Malloc(0, small)
			if err != nil {
				t.Error(err)
				return
			}
			is("a flag", lib.WindowRegister(c, p[0], small, &w[0], 0), abi.InvalidArgument)
			is("other memory", lib.WindowRegister(c, uintptr(other), small, &w[0], abi.WindowSymmetric),
				abi.UnhandledCudaError)
			i := rank // another order on each rank
			is("another order", lib.WindowRegister(c, p[i], []uint64{small, large}[i], &w[i], abi.WindowSymmetric),
				abi.SystemError)
			is("ncclCommWindowRegister", lib.WindowRegister(c, p[0], small, &w[0], abi.WindowSymmetric), abi.Success)
			is("ncclMemFree of a window", lib.MemFree(p[0]), abi.InvalidUsage)
			is("ncclCommDestroy with a window", lib.CommDestroy(c), abi.InvalidUsage)
			is("ncclCommWindowDeregister", lib.WindowDeregister(c, w[0]), abi.Success)
			is("it again", lib.WindowDeregister(c, w[0]), abi.InvalidArgument)
			is("ncclMemFree", lib.MemFree(p[0]), abi.Success)
			is("ncclMemFree", lib.MemFree(p[1]), abi.Success)
			is("ncclCommDestroy", lib.CommDestroy(c), abi.Success)
			if err := rt.Driver().Free(0, other); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
