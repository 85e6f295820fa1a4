package opencl

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// ModuleCompiler is [device.Compiler].ModuleCompiler.
func (d *Driver) ModuleCompiler(dev int) (string, error) {
	const op = "name the compiler"
	b, err := d.dev(op, dev)
	if err != nil {
		return "", err
	}
	if !b.compiler || b.svm == 0 { // without addresses, launches may need another form of the source
		return "", device.Errorf(device.ErrUnsupported, b.name, op, "the device's driver gives no programs of sources (%v)",
			b.Library)
	}
	return b.Library.String() + " " + b.driver + " for " + b.props.Name + " " + b.language, nil
}

// ModuleCompile is [device.Compiler].ModuleCompile.
func (d *Driver) ModuleCompile(dev int, source []byte) ([]byte, error) {
	const op = "compile a source"
	b, err := d.dev(op, dev)
	if err != nil {
		return nil, err
	}
	if !sourceOf(source) {
		return nil, device.Errorf(device.ErrInvalidArgument, b.name, op, "%d bytes that aren't text", len(source))
	}
	h, err := b.build(op, source)
	if err != nil {
		return nil, err
	}
	defer b.ProgramFree(h)
	return b.binary(h)
}

// binary is a program's for the device.
func (b *dev) binary(h abi.Program) ([]byte, error) {
	const call = "clGetProgramInfo"
	devices, err := list[abi.Device](b.Library, call, b.ProgramInfo, h, abi.ProgramDevices)
	if err != nil {
		return nil, err
	}
	sizes, err := list[uintptr](b.Library, call, b.ProgramInfo, h, abi.ProgramBinarySizes)
	if err != nil {
		return nil, err
	}
	at := slices.Index(devices, b.id)
	if at < 0 || len(sizes) != len(devices) || sizes[at] == 0 {
		return nil, device.Errorf(device.ErrUnsupported, b.name, "compile a source", "the driver gives no program (%v)", b.Library)
	}
	image, places := make([]byte, sizes[at]), make([]*byte, len(devices)) // those that aren't wanted are null
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&image[0])
	pin.Pin(&places[0])
	places[at] = &image[0]
	r := b.ProgramInfo(h, abi.ProgramBinaries, uintptr(len(places))*unsafe.Sizeof(places[0]), unsafe.Pointer(&places[0]), nil)
	return image, b.result("compile a source", call, r)
}
