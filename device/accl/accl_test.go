package accl_test

import (
	"testing"

	"github.com/chorus-comms/chorus/device/accl"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
)

func TestConformance(t *testing.T) {
	d, err := accl.New(accl.Options{Devices: 2, MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	devicetest.Run(t, d, devicetest.Module(testmodule.Image))
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
