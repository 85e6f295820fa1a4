//go:build linux

package nccltest_test

import (
	"testing"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
)

// standIn is the stand-in's table, on emulated devices.
func standIn(t *testing.T) (*device.Runtime, abi.Table) {
	t.Helper()
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nccltest.New(nccltest.Options{Version: "2.27", Driver: rt.Driver()})
	if err != nil {
		t.Fatal(err)
	}
	return rt, sim.Table()
}
