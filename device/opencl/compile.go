package opencl

import "github.com/chorus-comms/chorus/device/driver"

// ModuleCompiler is [driver.Compiler].ModuleCompiler.
func (d *Driver) ModuleCompiler(dev int) (string, error) {
	const op = "name the compiler"
	b, err := d.dev(op, dev)
	if err != nil {
		return "", err
	}
	if !b.compiler || b.svm == 0 { // without addresses, launches may need another form of the source
		return "", driver.Errorf(driver.ErrUnsupported, b.Name, op, "the device's driver gives no programs of sources (%v)",
			b.Library)
	}
	return b.Library.String() + " " + b.driver + " for " + b.Props.Name + " " + b.language, nil
}

// ModuleCompile is [driver.Compiler].ModuleCompile.
func (d *Driver) ModuleCompile(dev int, source []byte) ([]byte, error) {
	const op = "compile a source"
	b, err := d.dev(op, dev)
	if err != nil {
		return nil, err
	}
	if !sourceOf(source) {
		return nil, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%d bytes that aren't text", len(source))
	}
	if !b.compiler {
		return nil, b.noCompiler(op)
	}
	where, err := placeToCompile()
	if err != nil {
		return nil, err
	}
	image, err := b.apart(op, where, source, b.options())
	if err != nil || image != nil {
		return image, err
	}
	h, err := b.make(op, source, b.options())
	if err != nil {
		return nil, err
	}
	defer b.ProgramFree(h)
	image, err = b.program(h)
	if err != nil {
		return nil, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	return image, nil
}
