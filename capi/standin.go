//go:build cgo && linux && ncclsim

package main

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/ncclsim"
)

// A library that is built with the tag ncclsim, for tests, has stand-ins for NCCL on emulated devices. Their places,
// for CHORUS_NCCL_LIBRARY or the hint library, are "ncclsim-" and a release.
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
