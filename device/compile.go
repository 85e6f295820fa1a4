package device

import "github.com/chorus-comms/chorus/device/driver"

// Compiler is the name of the device's compiler, with its version and the model of device that it compiles for. The
// error is [ErrUnsupported] where the driver doesn't give images of sources; see [driver.Compiler].
func (d *Device) Compiler() (string, error) {
	drv, err := optional[driver.Compiler](d.rt, "name the compiler")
	if err != nil {
		return "", err
	}
	return drv.ModuleCompiler(d.index)
}

// Language is that of the sources that LoadModule takes: the name of the driver that has the language, which is this one
// unless it's a [driver.Speaker].
func (d *Device) Language() string {
	if drv, ok := d.rt.drv.(driver.Speaker); ok {
		return drv.ModuleLanguage()
	}
	return d.rt.Name()
}

// Compile makes an image of a source for the device.
func (d *Device) Compile(source []byte) ([]byte, error) {
	drv, err := optional[driver.Compiler](d.rt, "compile a source")
	if err != nil {
		return nil, err
	}
	return drv.ModuleCompile(d.index, source)
}
