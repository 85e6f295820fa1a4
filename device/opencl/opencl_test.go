//go:build linux && (amd64 || arm64)

package opencl_test

import (
	_ "embed"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// source has the functions that the suite launches, in OpenCL C.
//
//go:embed module.cl
var source []byte

// open makes a driver of the machine's OpenCL, which ends with the test.
func open(t testing.TB, o opencl.Options) device.Driver {
	t.Helper()
	libraries, err := opencl.Load()
	if err != nil {
		t.Skipf("left out: %v", err)
	}
	d, err := opencl.New(libraries, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.(device.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]opencl.Options{"shared": {}, "buffers": {Buffers: true}} {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			options := []devicetest.Option{devicetest.SharedMemory(), devicetest.Programs(testutil.Pick(10, 100)),
				devicetest.Skip("Kernels/HostAccess")} // the addresses are the processor's, too
			if m, err := d.(device.Modules).ModuleLoad(0, source); err == nil {
				_ = d.(device.Modules).ModuleUnload(m)
				options = append(options, devicetest.Module(source))
			} else {
				t.Logf("without modules, since the driver's compiler doesn't work here: %v", err)
			}
			devicetest.Run(t, d, options...)
		})
	}
}
