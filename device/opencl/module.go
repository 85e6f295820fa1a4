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
)

// module is a program that was built for a device.
type module struct {
	base.Entry[driver.ModuleHandle, *module]
	b *dev
	program
	mu   sync.Mutex
	made []*kernel
	uses atomic.Int32 // the handle, calls under way, and graphs that run its functions
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
	caller  abi.Kernel // takes offsets where this one doesn't, if one has been needed
	refused error      // why there's none
}

// program is one that was built, with what the library need not tell of it.
type program struct {
	h       abi.Program
	source  []byte             // none: it was compiled elsewhere
	kernels map[string][]param // by name; none: the library is asked
	offsets bool               // kernels take them
}

// param is what a kernel says of a parameter.
type param struct {
	Known   bool
	Address uint32
	Type    string
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
	for _, k := range m.made {
		m.b.KernelFree(k.h)
		if k.caller != 0 {
			m.b.KernelFree(k.caller)
		}
	}
	m.b.ProgramFree(m.h)
}

// sourceOf reports whether an image is a source: text.
func sourceOf(image []byte) bool { return bytes.IndexByte(image, 0) < 0 && utf8.Valid(image) }

// ModuleLoad is [driver.Modules].ModuleLoad. An image is a source in OpenCL C, what ModuleCompile has given, or a
// program that the device's own compiler has made.
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
	p, err := b.build(op, image)
	if err != nil {
		return 0, err
	}
	m := &module{b: b, program: p}
	m.uses.Store(1)
	return d.modules.Add(m), nil
}

// build makes a program of what a module is loaded from.
func (b *dev) build(op string, from []byte) (program, error) {
	options := b.options()
	switch {
	case bytes.HasPrefix(from, []byte(imageMagic)):
		return b.load(op, from, options)
	case !sourceOf(from):
		h, err := b.make(op, from, options)
		return program{h: h}, err
	case !b.compiler:
		return program{}, b.noCompiler(op)
	}
	return inForms(b, bytes.Clone(from), func(text []byte, offsets bool) (program, bool, error) {
		p, err := b.compiled(op, text)
		if err != nil || !offsets {
			return p, false, err
		}
		if p.kernels == nil {
			if p.kernels, err = b.kernelsOf(p.h); err != nil {
				err = driver.Errorf(driver.ErrInternal, b.Name, op, "%w", err)
			}
		}
		if p.kernels, p.offsets = withoutOffsets(p.kernels); err != nil || !p.offsets {
			b.ProgramFree(p.h)
		}
		return p, p.offsets, err
	})
}

// compiled makes a program of a source. Those that another process compiles are kept in files.
func (b *dev) compiled(op string, source []byte) (program, error) {
	options := b.options()
	where, err := compiler.Where()
	if err != nil {
		return program{}, err
	}
	files := keptPrograms()
	key := b.programKey(source, options)
	if files != nil {
		if data, err := files.Get(key); err == nil {
			if p, err := b.load(op, data, options); err == nil {
				p.source = source
				return p, nil
			}
			files.Remove(key) // of another driver or version, or none
		}
	}
	data, err := b.compiledApart(op, where, source, options)
	if err != nil {
		return program{}, err
	}
	if data == nil {
		h, err := b.make(op, source, options)
		return program{h: h, source: source}, err
	}
	p, err := b.load(op, data, options)
	p.source = source
	if err == nil && files != nil {
		_ = files.Put(key, data) // else it's compiled again the next time
	}
	return p, err
}

// load makes the program of an image.
func (b *dev) load(op string, data []byte, options string) (program, error) {
	m, err := parseImage(data)
	if err != nil {
		return program{}, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%w", err)
	}
	if m.Offsets && b.svm != 0 {
		return program{}, driver.Errorf(driver.ErrInvalidArgument, b.Name, op,
			"the image is for a device without shared virtual memory")
	}
	h, err := b.make(op, m.Program, options)
	return program{h, m.Source, m.Kernels, m.Offsets}, err
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
func (b *dev) make(op string, from []byte, options string) (abi.Program, error) {
	r := new(abi.Result)
	data, n := &from[0], uintptr(len(from))
	var h abi.Program
	call := "clCreateProgramWithSource"
	if sourceOf(from) {
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
	names, err := b.kernelNames(m.h)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInternal, b.Name, op, "%w", err)
	}
	if !slices.Contains(names, fn) {
		return 0, driver.Errorf(driver.ErrNotFound, b.Name, op, "the module has no function %q, but %s", fn,
			strings.Join(names, ", "))
	}
	k := &kernel{m: m}
	if k.h, err = b.kernel(op, m.h, fn); err != nil {
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
	m.made = append(m.made, k)
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
	known := false
	if k.params, known = k.m.kernels[fn]; !known {
		if k.params, err = b.parameters(k.h); err != nil {
			return fail(err)
		}
	}
	k.op = "launch " + fn
	k.attrs = driver.FunctionAttributes{Name: fn, MaxThreads: min(int(group), b.group), SharedBytes: int(static),
		LocalBytes: int(private)}
	all, last := told(k.params), len(k.params)-1
	k.local = last >= 0 && k.params[last].Known && k.params[last].Address == abi.AddressLocal
	if k.local {
		k.localType = k.params[last].Type
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

// parameters asks the library for a kernel's.
func (b *dev) parameters(k abi.Kernel) ([]param, error) {
	n, err := value[uint32](b.Library, "clGetKernelInfo", b.KernelInfo, k, abi.KernelNumArgs)
	if err != nil {
		return nil, err
	}
	params := make([]param, n)
	for i := range params {
		p := &params[i]
		ask := about(b.KernelArgInfo, uint32(i))
		p.Address, err = value[uint32](b.Library, "clGetKernelArgInfo", ask, k, abi.ArgAddress)
		p.Type, _ = text(b.Library, "clGetKernelArgInfo", ask, k, abi.ArgTypeName)
		p.Known = err == nil
	}
	return params, nil
}

// told reports whether all parameters are known.
func told(params []param) bool {
	return !slices.ContainsFunc(params, func(p param) bool { return !p.Known })
}

// kinds are the parameters' kinds by their types' names in OpenCL C.
var kinds = map[string]driver.ParamKind{"int": driver.ParamInt32, "uint": driver.ParamUint32,
	"unsigned int": driver.ParamUint32, "long": driver.ParamInt64, "ulong": driver.ParamUint64,
	"unsigned long": driver.ParamUint64, "float": driver.ParamFloat32, "double": driver.ParamFloat64}

// kind is the kind of argument that a parameter takes. One by value of another type is bytes: a struct, or a type that
// the source has defined.
func (p param) kind() driver.ParamKind {
	if p.Address != abi.AddressPrivate {
		return driver.ParamPointer
	}
	if k, ok := kinds[p.Type]; ok {
		return k
	}
	return driver.ParamBytes
}

// takes reports whether a parameter may take an argument. The library checks the size of what is bytes here.
func (p param) takes(k driver.ParamKind) bool {
	if !p.Known {
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
func (k *kernel) known() bool { return len(k.params) > 0 && k.params[len(k.params)-1].Known }

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
	if x.local = k.local; len(x.params) == len(k.params)-1 && !k.params[len(x.params)].Known {
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
			return refuse("argument %d is a %v, and the parameter a %s", i, p.Kind, k.params[i].Type)
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
	offsets := k.m.offsets
	if b.svm == 0 && !offsets && !x.multiples(0) {
		if at, err := k.behind(x.op); err == nil {
			h, offsets = at, true
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
			if *offset != 0 && !offsets {
				if *m, err = b.partOf(x.op, u); err != nil {
					return 0, parts, err
				}
				parts = append(parts, *m)
			}
			err = set(unsafe.Sizeof(*m), unsafe.Pointer(m))
			if err == nil && offsets {
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
