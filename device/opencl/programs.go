package opencl

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/device/opencl/compiler"
	"github.com/chorus-comms/chorus/internal/dl"
)

func init() { compiler.Serve(openToCompile) }

// openToCompile opens a device for a process that compiles.
func openToCompile(at compiler.Device) (compiler.Compile, error) {
	opened, err := dl.Source{Name: "OpenCL", Candidates: []string{at.Library}}.Open()
	if err != nil {
		return nil, err
	}
	l, err := load(opened)
	if err != nil {
		return nil, err
	}
	if at.Platform >= len(l.platforms) {
		return nil, fmt.Errorf("%v has %d platforms", l, len(l.platforms))
	}
	p := l.platforms[at.Platform]
	ids := l.deviceIDs(p)
	if at.Index >= len(ids) {
		return nil, fmt.Errorf("%v has %d devices", l, len(ids))
	}
	s := &space{Library: l, platform: p}
	b := &dev{Library: l, space: s, id: ids[at.Index], Device: base.Device{Name: name}, compiler: true}
	s.devs = []*dev{b}
	return b.compile, s.open()
}

// compile makes the image of a source, and has the library load its program, as the other process is going to.
func (b *dev) compile(source []byte, options string) ([]byte, error) {
	h, err := b.make("compile", source, options)
	if err != nil {
		return nil, err
	}
	defer b.ProgramFree(h)
	m, err := b.imageOf(h)
	if err != nil {
		return nil, err
	}
	again, err := b.make("load", m.Program, options)
	if err != nil {
		return nil, err
	}
	b.ProgramFree(again)
	return m.encode()
}

// program is what the compiler has made for the device.
func (b *dev) program(h abi.Program) ([]byte, error) {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		data, err := b.given(h)
		if err != nil || !halfWritten(data) {
			return data, err
		}
		if time.Since(begun) > time.Second {
			return nil, errHalfWritten
		}
	}
}

// given is what the driver gives out as a program.
func (b *dev) given(h abi.Program) ([]byte, error) {
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
		return nil, fmt.Errorf("the driver gives no program out (%v)", sizes)
	}
	data, places := make([]byte, sizes[at]), make([]*byte, len(devices)) // those that aren't wanted are null
	places[at] = &data[0]
	r := abi.Success
	pinned(&data[0], func() {
		n := uintptr(len(places)) * unsafe.Sizeof(places[0])
		r = b.ProgramInfo(h, abi.ProgramBinaries, n, unsafe.Pointer(&places[0]), nil)
	})
	if r != abi.Success {
		return nil, b.failed(call, r)
	}
	return data, nil
}
