package device

// Compiler is implemented by drivers with [Modules] whose compiler gives what it makes of a source, so that a program
// can keep it.
type Compiler interface {
	// ModuleCompiler names the compiler, its version, and the model of device that it compiles for: an image serves
	// where all three are the same.
	ModuleCompiler(dev int) (string, error)

	// ModuleCompile makes an image of a source, which ModuleLoad takes.
	ModuleCompile(dev int, source []byte) (image []byte, err error)
}

// Compiler is the name of the device's compiler, with its version and the model of device that it compiles for. The
// error is [ErrUnsupported] where the driver doesn't give images of sources; see [Compiler].
func (d *Device) Compiler() (string, error) {
	drv, err := optional[Compiler](d.rt, "name the compiler")
	if err != nil {
		return "", err
	}
	return drv.ModuleCompiler(d.index)
}

// Compile makes an image of a source for the device.
func (d *Device) Compile(source []byte) ([]byte, error) {
	drv, err := optional[Compiler](d.rt, "compile a source")
	if err != nil {
		return nil, err
	}
	return drv.ModuleCompile(d.index, source)
}
