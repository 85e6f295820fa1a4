package kernel

import (
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// vendors is a driver of another name whose compiler takes the sources of OpenCL.
type vendors struct {
	driver.Driver
	driver.Modules
	language string
}

func (d *vendors) ModuleLanguage() string { return d.language }

// Kernels run on any driver's devices that say which of the languages they take.
func TestLanguage(t *testing.T) {
	openCL(t)
	libraries, err := opencl.Load()
	must(t, err)
	drv, err := opencl.New(libraries, opencl.Options{})
	must(t, err)
	silent := struct {
		driver.Driver
		driver.Modules
	}{drv, drv.(driver.Modules)}
	for _, d := range []driver.Driver{silent, &vendors{drv, drv.(driver.Modules), "fortran"}} {
		if dev := device.NewRuntime("vendor", d).Devices()[0]; loader.Compiles(dev) {
			t.Errorf("%s compiles the kernels", dev.Language())
		}
	}
	c := &cl{dev: device.NewRuntime("vendor", &vendors{drv, drv.(driver.Modules), "opencl"}).Devices()[0]}
	c.stream, err = c.dev.NewStream(0)
	must(t, err)
	c.loader, err = loader.New(c.dev, nil)
	must(t, err)
	a := c.dense(t, dtype.Float32, 3)
	a.set([]complex128{1, 2, 3})
	var p Plan
	must(t, p.Elementwise("neg", dtype.Float32, []Operand{a.Operand}, []Operand{a.Operand}))
	must(t, c.run(&p))
	if got := a.elements(); got[0] != -1 || got[2] != -3 {
		t.Error(got)
	}
	must(t, c.stream.Close())
}
