package gpu

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// module is a loaded image.
type module struct {
	base.Entry[driver.ModuleHandle, *module]
	b    *gpu
	h    abi.Module
	code abi.Code     // which has the module, if the library has kernels without contexts
	uses atomic.Int32 // the handle, calls under way, and graphs that run its functions
}

// kernel is a function of a module.
type kernel struct {
	base.Entry[driver.FunctionHandle, *kernel]
	m      *module
	h      abi.Function
	run    abi.Function // what's launched: h, or a kernel without a context
	op     string       // a launch, in errors
	attrs  driver.FunctionAttributes
	sizes  []uint64 // of the parameters, if the library says them
	shared int      // bytes of dynamic shared memory at most

	dynamic atomic.Int64 // what it's set to
}

// sourceOf reports whether an image is a source: text, and not PTX.
func sourceOf(image []byte) bool {
	text := bytes.TrimRight(image, "\x00")
	return len(text) > 0 && bytes.IndexByte(text, 0) < 0 && utf8.Valid(text) && !isPTX(text) &&
		!bytes.HasPrefix(text, []byte("\x7f")) && !bytes.HasPrefix(text, []byte("__CLANG_OFFLOAD_BUNDLE__"))
}

// isPTX reports whether a text's first directive is PTX's .version.
func isPTX(text []byte) bool {
	for {
		text = bytes.TrimLeft(text, " \t\r\n")
		end, skip := []byte(nil), 0
		switch {
		case bytes.HasPrefix(text, []byte("//")):
			end, skip = []byte("\n"), 1
		case bytes.HasPrefix(text, []byte("/*")):
			end, skip = []byte("*/"), 2
		default:
			return bytes.HasPrefix(text, []byte(".version"))
		}
		at := bytes.Index(text, end)
		if at < 0 {
			return false
		}
		text = text[at+skip:]
	}
}

// whole reports whether an image that says how long it is, an ELF file or a fat binary, is that long: the library
// believes it.
func whole(image []byte) bool {
	n := uint64(len(image))
	switch {
	case bytes.HasPrefix(image, []byte("\x7fELF")):
		if n < 64 {
			return false
		}
		for _, h := range [][2]int{{32, 54}, {40, 58}} { // the tables of segments and of sections
			at, words := binary.LittleEndian.Uint64(image[h[0]:]), image[h[1]:]
			bytes := uint64(binary.LittleEndian.Uint16(words)) * uint64(binary.LittleEndian.Uint16(words[2:]))
			if at > n || bytes > n-at {
				return false
			}
		}
		return true
	case bytes.HasPrefix(image, []byte("\x50\xed\x55\xba")):
		return n >= 16 && binary.LittleEndian.Uint64(image[8:]) <= n-uint64(binary.LittleEndian.Uint16(image[6:]))
	}
	return true
}

// modular is the GPU if the library has modules.
func (d *Driver) modular(op string, dev int) (*gpu, error) {
	b, err := d.gpu(op, dev)
	if err != nil {
		return nil, err
	}
	if err := b.caps.Need("modules"); err != nil {
		return nil, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	return b, nil
}

// ModuleLoad is [driver.Modules].ModuleLoad. An image is what the library takes: PTX, a program of the device or
// several in a file; or else a source in the C that CUDA and HIP share, which NVRTC or hiprtc compiles, and whose
// functions are extern "C".
func (d *Driver) ModuleLoad(dev int, image []byte) (driver.ModuleHandle, error) {
	const op = "load a module"
	b, err := d.modular(op, dev)
	if err != nil {
		return 0, err
	}
	if len(image) == 0 || !whole(image) {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "an image of %d bytes, which isn't whole", len(image))
	}
	if sourceOf(image) {
		if image, err = b.program(op, bytes.TrimRight(image, "\x00")); err != nil {
			return 0, err
		}
	}
	m := &module{b: b}
	if err := m.load(op, append(bytes.Clone(image), 0)); err != nil { // PTX ends with 0
		return 0, err
	}
	m.uses.Store(1)
	return d.modules.Add(m), nil
}

// load has the library load an image. CUDA's translator of PTX says what is wrong with one.
func (m *module) load(op string, image []byte) error {
	b := m.b
	if b.CodeLoad != nil && b.relaxed(func() abi.Result { return m.loadCode(image) }) == abi.Success {
		return nil
	}
	if b.ModuleLoadEx == nil {
		return b.call(op, "ModuleLoadData", func() abi.Result { return b.Library.ModuleLoad(&m.h, &image[0]) })
	}
	log := make([]byte, 4096)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&log[0])
	options := []int32{abi.JITErrorLog, abi.JITErrorLogBytes}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	r := b.relaxed(func() abi.Result {
		return b.ModuleLoadEx(&m.h, &image[0], uint32(len(options)), &options[0], &values[0])
	})
	if r == abi.Success || r.Sticky() {
		return b.result(op, "ModuleLoadDataEx", r)
	}
	e := b.failed("ModuleLoadDataEx", r)
	text, _, _ := bytes.Cut(log, []byte{0})
	e.Log = string(bytes.TrimSpace(text))
	return driver.Errorf(kindOf(r), b.Name, op, "%w", e)
}

// loadCode loads an image for kernels without contexts, and into the GPU's context at once.
func (m *module) loadCode(image []byte) abi.Result {
	r := m.b.CodeLoad(&m.code, &image[0], nil, nil, 0, nil, nil, 0)
	if r != abi.Success {
		return r
	}
	if r = m.b.CodeModule(&m.h, m.code); r != abi.Success {
		m.b.CodeUnload(m.code)
		m.code = 0
	}
	return r
}

// ModuleUnload is [driver.Modules].ModuleUnload. The library gets the module back when what was enqueued has run and no
// graph has a function of it.
func (d *Driver) ModuleUnload(h driver.ModuleHandle) error {
	m, err := d.modules.Take("unload a module", h)
	if err != nil {
		return err
	}
	d.dropModules(m)
	return m.b.Broken()
}

// Hold is [base.Held].Hold.
func (m *module) Hold() { m.uses.Add(1) }

// Hold is [base.Held].Hold.
func (k *kernel) Hold() { k.m.Hold() }

// holdModules counts one more that uses modules.
func holdModules(list []*module) []*module {
	for _, m := range list {
		m.Hold()
	}
	return list
}

// dropModules counts one use less, and unloads unused modules when no run of them is under way.
func (d *Driver) dropModules(list ...*module) {
	for _, m := range list {
		if m.uses.Add(-1) == 0 {
			d.deferred.Add(m.b, []*gpu{m.b}, 0, func() {
				_ = m.b.call("unload a module", "ModuleUnload", func() abi.Result {
					if m.code != 0 {
						return m.b.CodeUnload(m.code)
					}
					return m.b.Library.ModuleUnload(m.h)
				})
			})
		}
	}
}

// ModuleFunction is [driver.Modules].ModuleFunction.
func (d *Driver) ModuleFunction(h driver.ModuleHandle, name string) (driver.FunctionHandle, error) {
	const op = "look up a function"
	m, err := d.modules.Find(op, h)
	if err != nil {
		return 0, err
	}
	defer d.dropModules(m)
	b, k := m.b, &kernel{m: m}
	if err := b.Broken(); err != nil {
		return 0, err
	}
	text := append([]byte(name), 0)
	if bytes.IndexByte(text, 0) != len(name) {
		return 0, driver.Errorf(driver.ErrNotFound, b.Name, op, "no function is called %q", name)
	}
	r := b.relaxed(func() abi.Result { return b.Library.ModuleFunction(&k.h, m.h, &text[0]) })
	if r == abi.NotFound {
		return 0, driver.Errorf(driver.ErrNotFound, b.Name, op, "the module has no function %q: %w", name,
			b.failed("ModuleGetFunction", r))
	} else if err := b.result(op, "ModuleGetFunction", r); err != nil {
		return 0, err
	}
	k.run = k.h
	if m.code != 0 {
		find := func() abi.Result { return b.CodeKernel(&k.run, m.code, &text[0]) }
		if err := b.call(op, "LibraryGetKernel", find); err != nil {
			return 0, err
		}
	}
	if err := k.describe(op, name); err != nil {
		return 0, err
	}
	return d.modules.AddFunction(op, d.family.Name, h, m, k)
}

// describe asks what the library knows of a function.
func (k *kernel) describe(op, name string) error {
	b := k.m.b
	k.attrs.Name, k.op = name, "launch "+name
	var static, dynamic int
	for _, x := range []struct {
		to   *int
		attr int32
	}{{&k.attrs.MaxThreads, abi.FunctionMaxThreads}, {&static, abi.FunctionShared},
		{&k.attrs.LocalBytes, abi.FunctionLocal}, {&k.attrs.Registers, abi.FunctionRegisters}} {
		v := new(int32)
		err := b.call(op, "FuncGetAttribute", func() abi.Result { return b.FunctionAttribute(v, x.attr, k.h) })
		if err != nil {
			return err
		}
		*x.to = int(*v)
	}
	k.attrs.SharedBytes = static
	plain, most := int32(abi.CUDAShared), int32(abi.CUDASharedAtMost)
	if b.family.Name == "hip" {
		plain, most = abi.HIPShared, abi.HIPShared
	}
	dynamic, err := b.attribute(op, plain)
	if err != nil {
		return err
	}
	limit, err := b.attribute(op, most)
	if err != nil {
		return err
	}
	k.dynamic.Store(int64(max(0, dynamic-static)))
	k.shared = max(0, max(dynamic, limit)-static)
	if b.FunctionParameter == nil {
		return nil
	}
	k.sizes = []uint64{}
	for i := uint64(0); ; i++ {
		at, n := new(uint64), new(uint64)
		switch r := b.relaxed(func() abi.Result { return b.FunctionParameter(k.h, i, at, n) }); r {
		case abi.Success:
			k.sizes = append(k.sizes, *n)
		case abi.InvalidValue: // there are no more
			return nil
		default:
			return b.result(op, "FuncGetParamInfo", r)
		}
	}
}

// FunctionAttributes is [driver.Modules].FunctionAttributes. The library doesn't know the types of parameters.
func (d *Driver) FunctionAttributes(h driver.FunctionHandle) (driver.FunctionAttributes, error) {
	k, err := d.modules.Function("attributes of a function", h)
	if err != nil {
		return driver.FunctionAttributes{}, err
	}
	defer d.dropModules(k.m)
	return k.attrs, nil
}

// allow lets the function have so much dynamic shared memory. CUDA requires this call for sizes that not all of its
// devices have.
func (k *kernel) allow(op string, shared int) error {
	b := k.m.b
	if b.FunctionSet == nil || int64(shared) <= k.dynamic.Load() {
		return nil
	}
	err := b.call(op, "FuncSetAttribute", func() abi.Result {
		if k.m.code != 0 {
			return b.KernelSet(abi.FunctionDynamic, int32(k.shared), k.run, b.id)
		}
		return b.FunctionSet(k.h, abi.FunctionDynamic, int32(k.shared))
	})
	if err == nil {
		k.dynamic.Store(int64(k.shared))
	}
	return err
}

// FunctionLaunch is [driver.Modules].FunctionLaunch. A kernel that is captured is a node with the arguments of now; a
// replay fails when memory that a pointer among them points to is gone.
func (d *Driver) FunctionLaunch(h driver.StreamHandle, fh driver.FunctionHandle, l driver.Launch) error {
	k, err := d.modules.Function("launch", fh)
	if err != nil {
		return err
	}
	defer d.dropModules(k.m)
	op := k.op
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if k.m.b != b {
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "the function's module is loaded on %s", k.m.b.Name)
	}
	var uses []use
	if s.capture != nil {
		uses = make([]use, 0, 16)
	}
	buf, params, err := d.arguments(op, k, &l, &uses)
	if err != nil {
		return err
	}
	if err := s.permits(op); err != nil {
		return err
	}
	if s.capture == nil && s.broken() != nil {
		return b.Broken() // left out
	}
	if err := k.allow(op, l.Shared); err != nil {
		return err
	}
	var args *unsafe.Pointer // the library copies what they point to before it returns
	if len(params) > 0 {
		s.params = s.params[:0]
		for _, p := range params {
			s.params = append(s.params, unsafe.Pointer(&buf[p.Offset]))
		}
		args = &s.params[0]
		defer clear(s.params)
	}
	g, t := l.Grid, l.Block
	m := d.before(s)
	run := func() abi.Result {
		return b.Library.FunctionLaunch(k.run, uint32(g.X), uint32(g.Y), uint32(g.Z), uint32(t.X), uint32(t.Y), uint32(t.Z),
			uint32(l.Shared), s.h, args, nil)
	}
	r := abi.Result(abi.InvalidContext)
	if k.m.code != 0 { // the context is the stream's
		r = run()
	}
	if r == abi.InvalidContext {
		r = b.do(run)
	}
	err = s.answered(op, "LaunchKernel", r)
	m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: k.attrs.Name}, err)
	if err == nil && s.capture != nil {
		s.capture.uses(uses...)
		s.capture.mu.Lock()
		s.capture.modules = append(s.capture.modules, holdModules([]*module{k.m})...)
		s.capture.mu.Unlock()
	}
	return err
}

// arguments checks a launch, whose dimensions are at least 1 then, and returns its arguments. It adds the memory that
// they point to to uses, unless that's nil.
func (d *Driver) arguments(op string, k *kernel, l *driver.Launch, uses *[]use) ([]byte, []driver.Param, error) {
	b := k.m.b
	refuse := func(format string, args ...any) ([]byte, []driver.Param, error) {
		return nil, nil, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, format, args...)
	}
	l.Grid, l.Block = l.Grid.OrOne(), l.Block.OrOne()
	for _, n := range []int{l.Grid.X, l.Grid.Y, l.Grid.Z, l.Block.X, l.Block.Y, l.Block.Z} {
		if n < 0 || n > math.MaxInt32 {
			return refuse("a grid of %v blocks of %v threads", l.Grid, l.Block)
		}
	}
	if most := b.Props.LaunchLimit(l.Block); l.Grid.X > most.X || l.Grid.Y > most.Y || l.Grid.Z > most.Z {
		return refuse("a grid of %v blocks of %v threads, of which %s runs %v at most", l.Grid, l.Block, b.Name, most)
	}
	most := k.attrs.MaxThreads
	if t := l.Block; t.X > most || t.Y > most || t.Z > most || t.Count() > most {
		return refuse("blocks of %v threads, of which it runs %d at most", l.Block, most)
	}
	if l.Shared < 0 || l.Shared > k.shared {
		return refuse("%d bytes of dynamic shared memory; there are %d", l.Shared, k.shared)
	}
	buf, params := l.Args.Packed()
	if k.sizes != nil && len(params) != len(k.sizes) {
		return refuse("%d arguments, and it has %d parameters", len(params), len(k.sizes))
	}
	for i, p := range params {
		if p.Bytes == 0 {
			return refuse("argument %d is a struct of no bytes", i)
		}
		if k.sizes != nil && uint64(p.Bytes) != k.sizes[i] {
			return refuse("argument %d is a %v of %d bytes, and the parameter has %d", i, p.Kind, p.Bytes, k.sizes[i])
		}
		if p.Kind != driver.ParamPointer {
			continue
		}
		at := driver.Ptr(binary.NativeEndian.Uint64(buf[p.Offset:]))
		if at == 0 {
			continue
		}
		a, err := d.Attributes(at)
		if err != nil {
			return nil, nil, err
		}
		if a.Type == driver.DeviceMemory && a.Device != b.Index && !d.Reaches(b.Index, a.Device) {
			return nil, nil, driver.Errorf(driver.ErrWrongDevice, b.Name, op,
				"argument %d is memory of device %d, to which %s has no access", i, a.Device, b.Name)
		}
		if *uses != nil {
			*uses = append(*uses, use{at, 1, a.Type})
		}
	}
	return buf, params, nil
}
