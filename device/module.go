package device

import (
	"encoding/binary"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// elementDims is how many dimensions the layout of copy_elements has, elementThreads how many threads run it in a
// block, and mostElements how many elements a run copies.
const elementDims, elementThreads, mostElements = 8, 256, 1<<31 - 1

// CopyElements enqueues a run of the driver's copy_elements, for tensors of at most 8 dimensions; see [Elements]. It's
// for package tensor.
func (s *Stream) CopyElements(dst, src Ptr, to, from int32, sizes, dstStrides, srcStrides []int) error {
	f, err := s.dev.elements()
	if err != nil {
		return err
	}
	missing := elementDims - len(sizes)
	if missing < 0 {
		return Errorf(ErrUnsupported, s.dev.Name(), "copy elements", "%d dimensions that don't join, of %d", len(sizes),
			elementDims)
	}
	return pieces(mostElements, dst, src, sizes, dstStrides, srcStrides, func(dst, src Ptr, sizes []int) error {
		layout := binary.NativeEndian.AppendUint32(nil, uint32(to))
		layout = binary.NativeEndian.AppendUint32(layout, uint32(from))
		for _, list := range [][]int{sizes, dstStrides, srcStrides} {
			for range missing {
				layout = binary.NativeEndian.AppendUint64(layout, 1)
			}
			for _, x := range list {
				layout = binary.NativeEndian.AppendUint64(layout, uint64(x))
			}
		}
		n := product(sizes)
		args := new(Args).Pointer(dst).Pointer(src).Int64(int64(n)).Bytes(layout, 8)
		grid := Dim{X: (n + elementThreads - 1) / elementThreads}
		return s.LaunchFunction(f, Launch{Grid: grid, Block: Dim{X: elementThreads}, Args: args})
	})
}

func product(sizes []int) int {
	n := 1
	for _, x := range sizes {
		n *= x
	}
	return n
}

// pieces calls f for parts of a copy of most elements each: halves of the first dimension that has several, halved
// again until they are small enough.
func pieces(most int, dst, src Ptr, sizes, dstStrides, srcStrides []int,
	f func(dst, src Ptr, sizes []int) error) error {
	if product(sizes) <= most {
		return f(dst, src, sizes)
	}
	k := slices.IndexFunc(sizes, func(n int) bool { return n > 1 })
	first, second := slices.Clone(sizes), slices.Clone(sizes)
	first[k] /= 2
	second[k] -= first[k]
	err := pieces(most, dst, src, first, dstStrides, srcStrides, f)
	if err != nil {
		return err
	}
	return pieces(most, dst.Add(first[k]*dstStrides[k]), src.Add(first[k]*srcStrides[k]), second, dstStrides, srcStrides,
		f)
}

// elements is the driver's copy_elements, which is loaded when it's first needed.
func (d *Device) elements() (*Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.copies != nil {
		return d.copies, nil
	}
	drv, err := optional[Elements](d.rt, "copy elements")
	if err != nil {
		return nil, err
	}
	image, err := drv.ElementsImage(d.index)
	if err != nil {
		return nil, err
	}
	m, err := d.LoadModule(image)
	if err == nil {
		d.copies, err = m.Function("copy_elements")
	}
	return d.copies, err
}

// Module is a loaded image. Close it when its functions aren't launched any more.
type Module struct {
	dev *Device
	drv Modules
	h   driver.ModuleHandle
}

// LoadModule loads an image on the device; see [Modules].
func (d *Device) LoadModule(image []byte) (*Module, error) {
	drv, err := optional[Modules](d.rt, "load a module")
	if err != nil {
		return nil, err
	}
	h, err := drv.ModuleLoad(d.index, image)
	if err != nil {
		return nil, err
	}
	return &Module{d, drv, h}, nil
}

// Device is where the module is loaded.
func (m *Module) Device() *Device { return m.dev }

// Close unloads the module. Runs that are enqueued still happen.
func (m *Module) Close() error { return m.drv.ModuleUnload(m.h) }

// Function looks a function up; [ErrNotFound] if there is none of the name.
func (m *Module) Function(name string) (*Function, error) {
	h, err := m.drv.ModuleFunction(m.h, name)
	if err != nil {
		return nil, err
	}
	return &Function{m, name, h}, nil
}

// Function is a compiled kernel. It's good until its module is closed.
type Function struct {
	module *Module
	name   string
	h      driver.FunctionHandle
}

// Name is what the function was looked up by.
func (f *Function) Name() string { return f.name }

// Attributes describes the function.
func (f *Function) Attributes() (FunctionAttributes, error) {
	return f.module.drv.FunctionAttributes(f.h)
}

// LaunchFunction enqueues a run of a compiled kernel, whose module must be of the stream's device. While the stream is
// captured it becomes a node of the graph, with the arguments of now. Memory that arguments point to and that is
// deallocated afterwards is kept until the run is over.
func (s *Stream) LaunchFunction(f *Function, l Launch) error {
	if f.module.dev != s.dev {
		return Errorf(ErrWrongDevice, s.dev.Name(), "launch "+f.name, "the function's module is loaded on %s",
			f.module.dev.Name())
	}
	if err := f.module.drv.FunctionLaunch(s.h, f.h, l); err != nil {
		return err
	}
	l.Args.Pointers(func(p Ptr) { s.uses(p) })
	return nil
}
