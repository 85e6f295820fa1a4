package opencl

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/device/opencl/compiler"
	"github.com/chorus-comms/chorus/internal/kept"
)

// module is a program that was built for a device.
type module struct {
	base.Entry[driver.ModuleHandle, *module]
	b       *dev
	h       abi.Program
	image   []byte
	mu      sync.Mutex
	kernels []*kernel
	uses    atomic.Int32 // the handle, calls under way, and graphs that run its functions
}

// kernel is a function of a module.
type kernel struct {
	base.Entry[driver.FunctionHandle, *kernel]
	m      *module
	attrs  driver.FunctionAttributes
	op     string // of its launches
	params []param
	local  bool // its last parameter is local memory: of a launch's dynamic size

	localType string

	mu      sync.Mutex // a kernel has its arguments until it's enqueued
	h       abi.Kernel
	behind  abi.Kernel // takes offsets, if one has been needed
	refused error      // why there's none
}

// param is what a kernel says of a parameter.
type param struct {
	known   bool
	address uint32
	typ     string
}

// Hold is [base.Held].Hold.
func (m *module) Hold() { m.uses.Add(1) }

// Hold is [base.Held].Hold.
func (k *kernel) Hold() { k.m.Hold() }

// drop counts one use less. The library keeps what enqueued work needs.
func (m *module) drop() {
	if m.uses.Add(-1) > 0 {
		return
	}
	for _, k := range m.kernels {
		m.b.KernelFree(k.h)
		if k.behind != 0 {
			m.b.KernelFree(k.behind)
		}
	}
	m.b.ProgramFree(m.h)
}

// sourceOf reports whether an image is a source: text.
func sourceOf(image []byte) bool { return bytes.IndexByte(image, 0) < 0 && utf8.Valid(image) }

// ModuleLoad is [driver.Modules].ModuleLoad. An image is a source in OpenCL C, or a program that the device's own
// compiler has made.
func (d *Driver) ModuleLoad(dev int, image []byte) (driver.ModuleHandle, error) {
	const op = "load a module"
	b, err := d.dev(op, dev)
	if err != nil {
		return 0, err
	}
	if source := bytes.TrimRight(image, "\x00"); len(source) == 0 || sourceOf(source) {
		image = source // a program may end with zeros
	}
	if len(image) == 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "an image of no bytes")
	}
	h, err := b.build(op, image)
	if err != nil {
		return 0, err
	}
	m := &module{b: b, h: h, image: bytes.Clone(image)}
	m.uses.Store(1)
	return d.modules.Add(m), nil
}

// build makes a program of an image. Programs of sources that another process compiles are kept in files.
func (b *dev) build(op string, image []byte) (abi.Program, error) {
	options := b.options()
	if !sourceOf(image) {
		return b.make(op, image, options)
	}
	if !b.compiler {
		return 0, b.noCompiler(op)
	}
	where, err := compiler.Where()
	if err != nil {
		return 0, err
	}
	var files *kept.Folder
	if len(where.Command) > 0 {
		files = keptPrograms()
	}
	key := b.programKey(image, options)
	if files != nil {
		if program, err := files.Get(key); err == nil {
			if h, err := b.make(op, program, options); err == nil {
				return h, nil
			}
			files.Remove(key) // of another driver, or none
		}
	}
	program, err := b.compiledApart(op, where, image, options)
	if err != nil {
		return 0, err
	}
	if program == nil {
		return b.make(op, image, options)
	}
	h, err := b.make(op, program, options)
	if err == nil && files != nil {
		_ = files.Put(key, program) // else it's compiled again the next time
	}
	return h, err
}

// options are those of the compiler. Without one for it, a division may be off by 2.5 units in the last place.
func (b *dev) options() string {
	o := b.language + " -cl-kernel-arg-info"
	if b.rounds {
		o += " -cl-fp32-correctly-rounded-divide-sqrt"
	}
	return strings.TrimSpace(o)
}

func (b *dev) noCompiler(op string) error {
	return driver.Errorf(driver.ErrUnsupported, b.Name, op, "the device's driver has no compiler (%v)", b.Library)
}

// make has the library compile a source, or load a program.
func (b *dev) make(op string, image []byte, options string) (abi.Program, error) {
	r := new(abi.Result)
	data, n := &image[0], uintptr(len(image))
	var h abi.Program
	call := "clCreateProgramWithSource"
	if sourceOf(image) {
		pinned(data, func() { h = b.ProgramFromSource(b.space.h, 1, &data, &n, r) })
	} else {
		call = "clCreateProgramWithBinary"
		pinned(data, func() { h = b.ProgramFromBinary(b.space.h, 1, &b.id, &n, &data, nil, r) })
	}
	if err := b.result(op, call, *r); err != nil {
		return 0, err
	}
	with := append([]byte(options), 0)
	res := b.ProgramBuild(h, 1, &b.id, &with[0], 0, 0)
	if res == abi.Success {
		return h, nil
	}
	defer b.ProgramFree(h)
	log, _ := text(b.Library, "clGetProgramBuildInfo", about(b.ProgramBuildInfo, b.id), h, abi.BuildLog)
	if res.Lost() {
		return 0, b.result(op, "clBuildProgram", res)
	}
	if log == "" {
		log = b.failed("clBuildProgram", res).Error()
	}
	kind := driver.ErrInvalidArgument
	if res == abi.CompilerNotAvailable {
		kind = driver.ErrUnsupported
	}
	return 0, driver.Errorf(kind, b.Name, op, "%w", &CompileError{Log: log, Code: res})
}

// ModuleUnload is [driver.Modules].ModuleUnload.
func (d *Driver) ModuleUnload(h driver.ModuleHandle) error {
	m, err := d.modules.Take("unload a module", h)
	if err != nil {
		return err
	}
	m.drop()
	return m.b.Broken()
}

// ModuleFunction is [driver.Modules].ModuleFunction.
func (d *Driver) ModuleFunction(h driver.ModuleHandle, fn string) (driver.FunctionHandle, error) {
	const op = "look up a function"
	m, err := d.modules.Find(op, h)
	if err != nil {
		return 0, err
	}
	defer m.drop()
	b := m.b
	if err := b.Broken(); err != nil {
		return 0, err
	}
	names, err := text(b.Library, "clGetProgramInfo", b.ProgramInfo, m.h, abi.ProgramKernelNames)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInternal, b.Name, op, "%w", err)
	}
	if !slices.Contains(strings.Split(names, ";"), fn) {
		return 0, driver.Errorf(driver.ErrNotFound, b.Name, op, "the module has no function %q, but %s", fn,
			strings.ReplaceAll(names, ";", ", "))
	}
	r, title := new(abi.Result), append([]byte(fn), 0)
	k := &kernel{m: m}
	k.h = b.KernelMake(m.h, &title[0], r)
	if err := b.result(op, "clCreateKernel", *r); err != nil {
		return 0, err
	}
	if err := k.describe(op, fn); err != nil {
		b.KernelFree(k.h)
		return 0, err
	}
	fh, err := d.modules.AddFunction(op, b.Name, h, m, k)
	if err != nil {
		b.KernelFree(k.h)
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kernels = append(m.kernels, k)
	return fh, nil
}

// describe asks what the library knows of a function.
func (k *kernel) describe(op, fn string) error {
	b := k.m.b
	fail := func(err error) error { return driver.Errorf(driver.ErrInternal, b.Name, op, "%s: %w", fn, err) }
	const call = "clGetKernelWorkGroupInfo"
	group, err := value[uintptr](b.Library, call, about(b.KernelGroupInfo, b.id), k.h, abi.KernelGroupSize)
	if err != nil {
		return fail(err)
	}
	static, err := value[uint64](b.Library, call, about(b.KernelGroupInfo, b.id), k.h, abi.KernelLocal)
	if err != nil {
		return fail(err)
	}
	private, _ := value[uint64](b.Library, call, about(b.KernelGroupInfo, b.id), k.h, abi.KernelPrivate)
	n, err := value[uint32](b.Library, "clGetKernelInfo", b.KernelInfo, k.h, abi.KernelNumArgs)
	if err != nil {
		return fail(err)
	}
	k.op = "launch " + fn
	k.attrs = driver.FunctionAttributes{Name: fn, MaxThreads: min(int(group), b.group), SharedBytes: int(static),
		LocalBytes: int(private)}
	k.params = make([]param, n)
	all := true
	for i := range k.params {
		p := &k.params[i]
		ask := about(b.KernelArgInfo, uint32(i))
		p.address, err = value[uint32](b.Library, "clGetKernelArgInfo", ask, k.h, abi.ArgAddress)
		p.typ, _ = text(b.Library, "clGetKernelArgInfo", ask, k.h, abi.ArgTypeName)
		p.known = err == nil
		all = all && p.known
	}
	last := len(k.params) - 1
	k.local = last >= 0 && k.params[last].known && k.params[last].address == abi.AddressLocal
	if k.local {
		k.localType = k.params[last].typ
		k.params = k.params[:last]
	}
	if !all {
		return nil
	}
	k.attrs.Params = make([]driver.ParamKind, len(k.params))
	for i, p := range k.params {
		k.attrs.Params[i] = p.kind()
	}
	return nil
}

// kinds are the parameters' kinds by their types' names in OpenCL C.
var kinds = map[string]driver.ParamKind{"int": driver.ParamInt32, "uint": driver.ParamUint32,
	"unsigned int": driver.ParamUint32, "long": driver.ParamInt64, "ulong": driver.ParamUint64,
	"unsigned long": driver.ParamUint64, "float": driver.ParamFloat32, "double": driver.ParamFloat64}

// kind is the kind of argument that a parameter takes. One by value of another type is bytes: a struct, or a type that
// the source has defined.
func (p param) kind() driver.ParamKind {
	if p.address != abi.AddressPrivate {
		return driver.ParamPointer
	}
	if k, ok := kinds[p.typ]; ok {
		return k
	}
	return driver.ParamBytes
}

// takes reports whether a parameter may take an argument. The library checks the size of what is bytes here.
func (p param) takes(k driver.ParamKind) bool {
	if !p.known {
		return true
	}
	want := p.kind()
	return want == k || want == driver.ParamBytes && k != driver.ParamPointer
}

// FunctionAttributes is [driver.Modules].FunctionAttributes.
func (d *Driver) FunctionAttributes(h driver.FunctionHandle) (driver.FunctionAttributes, error) {
	k, err := d.modules.Function("attributes of a function", h)
	if err != nil {
		return driver.FunctionAttributes{}, err
	}
	defer k.m.drop()
	a := k.attrs
	a.Params = slices.Clone(a.Params)
	return a, nil
}

// known reports whether the kernel tells its last parameter.
func (k *kernel) known() bool { return len(k.params) > 0 && k.params[len(k.params)-1].known }

// dynamic is how much dynamic local memory a block of the kernel can have.
func (k *kernel) dynamic() int { return max(0, k.m.b.local-k.attrs.SharedBytes) }

// FunctionLaunch is [driver.Modules].FunctionLaunch. Dynamic shared memory is the function's last parameter, a pointer
// to local memory, for which there's no argument.
func (d *Driver) FunctionLaunch(h driver.StreamHandle, fh driver.FunctionHandle, l driver.Launch) error {
	k, err := d.modules.Function("launch", fh)
	if err != nil {
		return err
	}
	defer k.m.drop()
	op := k.op
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	if k.m.b != s.b {
		return driver.Errorf(driver.ErrWrongDevice, s.b.Name, op, "the function's module is loaded on %s", k.m.b.Name)
	}
	if !s.captured() {
		if err := d.prepare(&s.launch, op, k, &l); err != nil {
			return err
		}
		return s.launch.run(s)
	}
	x := &launch{}
	if err := d.prepare(x, op, k, &l); err != nil {
		return err
	}
	for _, u := range x.sides {
		if u.p != 0 {
			x.uses = append(x.uses, u)
		}
	}
	x.args = slices.Clone(x.args)
	x.params = slices.Clone(x.params)
	return s.submit(op, work{kind: driver.ActivityKernel, name: k.attrs.Name, uses: x.uses, launch: x, run: x.run})
}

// launch is a run of a kernel with its arguments.
type launch struct {
	op           string
	k            *kernel
	args         []byte
	params       []driver.Param
	sides        []side // by parameter; zero for what is no pointer
	uses         []side // of a launch that is captured
	local        bool   // the last parameter is local memory, of shared bytes
	shared       uintptr
	elements     int // of brief work; 0: unknown
	items, block [3]uintptr
}

// prepare checks a launch, whose dimensions are at least 1 then. x has the memory of one that is over, or none.
func (d *Driver) prepare(x *launch, op string, k *kernel, l *driver.Launch) error {
	b := k.m.b
	refuse := func(format string, args ...any) error {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, format, args...)
	}
	g, t := l.Grid.OrOne(), l.Block.OrOne()
	for _, n := range [...]int{g.X, g.Y, g.Z, t.X, t.Y, t.Z} {
		if n < 0 || n > math.MaxInt32 {
			return refuse("a grid of %v blocks of %v threads", g, t)
		}
	}
	most := k.attrs.MaxThreads
	if t.X > most || t.Y > most || t.Z > most || t.Count() > most || uintptr(t.X) > b.items[0] ||
		uintptr(t.Y) > b.items[1] || uintptr(t.Z) > b.items[2] {
		return refuse("blocks of %v threads, of which it runs %d at most, and %v in each dimension", t, most, b.items)
	}
	if l.Shared < 0 || l.Shared > k.dynamic() || l.Shared > 0 && !k.local && (k.known() || len(k.params) == 0) {
		return refuse("%d bytes of dynamic shared memory; there are %d, for a last parameter that is local (%t)", l.Shared,
			k.dynamic(), k.local)
	}
	*x = launch{op: op, k: k, sides: x.sides[:0], shared: uintptr(max(l.Shared, 1)), elements: l.Elements,
		items: [3]uintptr{uintptr(g.X * t.X), uintptr(g.Y * t.Y), uintptr(g.Z * t.Z)},
		block: [3]uintptr{uintptr(t.X), uintptr(t.Y), uintptr(t.Z)}}
	x.args, x.params = l.Args.Packed()
	if x.local = k.local; len(x.params) == len(k.params)-1 && !k.params[len(x.params)].known {
		x.local = true // a program need not tell its parameters
	}
	if want := len(k.params); len(x.params) != want && !(x.local && !k.local) {
		return refuse("%d arguments, and it has %d parameters", len(x.params), len(k.params))
	}
	x.sides = slices.Grow(x.sides, len(x.params))[:len(x.params)]
	for i, p := range x.params {
		x.sides[i] = side{}
		switch {
		case p.Bytes == 0:
			return refuse("argument %d is a struct of no bytes", i)
		case !k.params[i].takes(p.Kind):
			return refuse("argument %d is a %v, and the parameter a %s", i, p.Kind, k.params[i].typ)
		case p.Kind != driver.ParamPointer:
			continue
		}
		at := driver.Ptr(binary.NativeEndian.Uint64(x.args[p.Offset:]))
		if at == 0 {
			continue
		}
		u, err := d.side(b, op, "argument", at, 1)
		if err == nil {
			err = d.reachable(b, op, i, u)
		}
		if err != nil {
			return err
		}
		x.sides[i] = u
	}
	return nil
}

// reachable demands that kernels of a device can touch what an argument points to.
func (d *Driver) reachable(b *dev, op string, i int, u side) error {
	switch {
	case u.typ == driver.Unmanaged && b.svm&abi.SVMSystem == 0:
		return driver.Errorf(driver.ErrWrongKind, b.Name, op,
			"argument %d is %v memory, which kernels of the device can't touch", i, u.typ)
	case u.typ == driver.HostMemory && (u.a.b.space != b.space || !b.fine()):
		return driver.Errorf(driver.ErrWrongKind, b.Name, op, "argument %d is pinned memory, which kernels of the device "+
			"can't touch: copy it", i)
	case u.device() && !d.Reaches(b.Index, u.a.b.Index):
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op,
			"argument %d is memory of device %d, to which %s has no access", i, u.a.b.Index, b.Name)
	}
	return nil
}

// run enqueues the launch, unless the stream carries an error. The stream is locked.
func (x *launch) run(s *stream) error {
	x.k.mu.Lock()
	defer x.k.mu.Unlock()
	h, parts, err := x.set()
	defer s.b.free(parts) // work that's enqueued keeps them
	if err != nil {
		return err
	}
	c := command{call: "clEnqueueNDRangeKernel", kind: driver.ActivityKernel, name: x.k.attrs.Name, elements: x.elements}
	return s.enqueue(x.op, c, func(e *abi.Event) abi.Result {
		return s.b.KernelRun(s.q, h, 3, nil, &x.items[0], &x.block[0], 0, nil, e)
	})
}

// set gives the kernel its arguments, and returns what runs with them. The kernel is locked. A kernel that takes no
// offsets into buffers gets parts of them, which are the caller's.
func (x *launch) set() (h abi.Kernel, parts []abi.Mem, err error) {
	k, b := x.k, x.k.m.b
	h = k.h
	shifted := false
	if b.svm == 0 && !x.multiples(0) {
		if at, err := k.shifted(x.op); err == nil {
			h, shifted = at, true
		} else if !x.multiples(max(b.align, 1)) {
			return 0, nil, err
		}
	}
	at := uint32(0)
	set := func(n uintptr, value unsafe.Pointer) error {
		at++
		return b.result(x.op, "clSetKernelArg", b.KernelArgument(h, at-1, n, value))
	}
	for i, p := range x.params {
		u := x.sides[i]
		switch {
		case p.Kind != driver.ParamPointer:
			err = set(uintptr(p.Bytes), unsafe.Pointer(&x.args[p.Offset]))
		case b.svm != 0:
			err = b.result(x.op, "clSetKernelArgSVMPointer", b.SVMPointer(h, at, uintptr(u.p)))
			at++
		default:
			m, offset := new(abi.Mem), new(uint64) // null
			if u.p != 0 {
				*m, *offset = u.a.buf, uint64(u.offset())
			}
			if *offset != 0 && !shifted {
				if *m, err = b.partOf(x.op, u); err != nil {
					return 0, parts, err
				}
				parts = append(parts, *m)
			}
			err = set(unsafe.Sizeof(*m), unsafe.Pointer(m))
			if err == nil && shifted {
				err = set(unsafe.Sizeof(*offset), unsafe.Pointer(offset))
			}
		}
		if err != nil {
			return 0, parts, err
		}
	}
	if x.local {
		err = set(x.shared, nil)
	}
	return h, parts, err
}

// partOf is the part of a buffer from a pointer on.
func (b *dev) partOf(op string, u side) (abi.Mem, error) {
	region, r := &[2]uintptr{u.offset(), uintptr(u.a.Bytes) - u.offset()}, new(abi.Result)
	m := b.BufferPart(u.a.buf, abi.MemReadWrite, abi.BufferRegion, region, r)
	return m, b.result(op, "clCreateSubBuffer", *r)
}

func (b *dev) free(parts []abi.Mem) {
	for _, m := range parts {
		b.BufferFree(m)
	}
}

// multiples reports whether all pointers lie at multiples of a number of bytes in their buffers; 0: where these begin.
func (x *launch) multiples(of int) bool {
	return !slices.ContainsFunc(x.sides, func(u side) bool {
		return u.p != 0 && u.offset() != 0 && (of == 0 || u.offset()%uintptr(of) != 0)
	})
}
