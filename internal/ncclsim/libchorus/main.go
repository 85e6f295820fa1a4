//go:build cgo && linux

// Command libchorus is libchorus.so with stand-ins for NCCL on emulated devices in it, for tests. Their places, for
// CHORUS_NCCL_LIBRARY or the hint library, are "ncclsim-" and a release.
//
//	PACKAGE=./internal/ncclsim/libchorus sh capi/build.sh libchorus.so
package main

import (
	"fmt"

	_ "github.com/chorus-comms/chorus/capi"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/ncclsim"
)

func init() {
	rt, err := device.Open("accinte")
	if err != nil {
		panic(err)
	}
	for _, level := range ncclsim.Levels {
		sim, err := ncclsim.New(ncclsim.Options{Version: level, Driver: rt.Driver()})
		if err == nil {
			_, err = nccl.Supply("NCCL", "ncclsim-"+level, sim.Table(), "accinte")
		}
		if err != nil {
			panic(fmt.Sprintf("the stand-in for NCCL %s: %v", level, err))
		}
	}
}

// main is not called in a shared library.
func main() {}
