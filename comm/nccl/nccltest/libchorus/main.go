//go:build cgo && linux

// Command libchorus is libchorus.so with stand-ins for NCCL on emulated devices in it, for tests. Their places, for
// CHORUS_NCCL_LIBRARY or the hint library, are "ncclsim-" and a release. The devices "cuda" are a stand-in's, too, on
// the same emulated devices, whose streams and memory it takes for a foreign library's. The file that NCCLSIM_CALLS
// names gets a line for each call of NCCL's functions: its name, and the process.
//
//	PACKAGE=./comm/nccl/nccltest/libchorus sh capi/build.sh libchorus.so
package main

import (
	"fmt"
	"os"
	"sync/atomic"

	_ "github.com/chorus-comms/chorus/capi"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
)

func init() {
	rt, err := device.Open("accinte")
	if err == nil {
		err = device.Unregister("cuda")
	}
	if err != nil {
		panic(err)
	}
	var cuda atomic.Pointer[gputest.Library]
	device.RegisterLoader("cuda", func() (device.Driver, error) {
		sim, err := gputest.New(gputest.Options{Name: "cuda", Driver: rt.Driver().(*accinte.Driver)})
		if err != nil {
			return nil, err
		}
		cuda.Store(sim)
		lib, err := gpu.Supply("cuda", "a stand-in", sim.Table())
		if err == nil {
			table, _ := sim.BLAS(nil)
			err = lib.SupplyBLAS("a stand-in", table)
		}
		if err == nil {
			table, _ := sim.Lt(nil)
			err = lib.SupplyLt("a stand-in", table)
		}
		if err == nil {
			table, _ := sim.FFT(nil)
			err = lib.SupplyFFT("a stand-in", table)
		}
		if err == nil {
			table, _ := sim.Solver(nil)
			err = lib.SupplySolver("a stand-in", table)
		}
		if err == nil {
			table, _, _ := sim.Sparse(nil)
			err = lib.SupplySparse("a stand-in", table)
		}
		if err != nil {
			return nil, err
		}
		return gpu.New(lib)
	})
	current := func() (int, bool) {
		if sim := cuda.Load(); sim != nil {
			return sim.Current()
		}
		return 0, false
	}
	for _, level := range nccltest.Levels {
		sim, err := nccltest.New(nccltest.Options{Version: level, Driver: rt.Driver(), Fail: note, Current: current})
		if err == nil {
			_, err = nccl.Supply("NCCL", "ncclsim-"+level, sim.Table(), "accinte", "cuda")
		}
		if err != nil {
			panic(fmt.Sprintf("the stand-in for NCCL %s: %v", level, err))
		}
	}
}

// note writes a call down.
func note(call string, _ int) abi.Result {
	if name := os.Getenv("NCCLSIM_CALLS"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, call, os.Getpid())
			_ = f.Close()
		}
		if err != nil {
			panic(err)
		}
	}
	return abi.Success
}

// main is not called in a shared library.
func main() {}
