package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/plain"
)

// compiler makes programs of sources, by the libraries of the machine: NVRTC or hiprtc, which are opened when the first
// source comes.
type compiler struct {
	family *abi.Family
	places []string
	driver int    // the version of CUDA's driver, 12040 for 12.4
	hip    string // HIP's version, or empty for CUDA: hiprtc says that it is 9.0 in all releases from ROCm 5.2 to 6.4

	mu     sync.Mutex
	tools  []*tool        // CUDA's newest first
	chosen map[int]choice // for devices of a compute capability
	err    error          // why there is none

	single sync.Mutex // of compilations by hiprtc. NVRTC takes programs of several threads at once
}

// tool is one library that compiles.
type tool struct {
	*abi.Compiler
	caps    *dl.Capabilities
	version int    // of CUDA's
	name    string // with its version and place
	folder  string // where it lies
}

// choice is a tool for a device, and the architecture to compile for.
type choice struct {
	*tool
	target string // for "sm_90" it makes the device's own program, for "compute_90" PTX, for "" hiprtc the current device's
}

// supply adds a library of a table that the caller has filled.
func (c *compiler) supply(place string, table abi.Compiler) error {
	caps, err := dl.Supplied(c.family.Compiler, "unknown", place, &table)
	if err == nil {
		c.add(&tool{Compiler: &table, caps: caps}, place)
	}
	return err
}

// open opens the libraries: of CUDA's all, since the driver mightn't load what some make. It's locked.
func (c *compiler) open() error {
	if c.tools != nil || c.err != nil {
		return c.err
	}
	source := dl.Source{Name: c.family.Compiler, Candidates: c.places}
	var libraries []*dl.Library
	if c.hip == "" {
		libraries, c.err = source.OpenAll()
	} else if lib, err := source.Open(); err == nil {
		libraries = []*dl.Library{lib}
	} else {
		c.err = err
	}
	var incomplete []error
	for _, lib := range libraries {
		t := &tool{Compiler: new(abi.Compiler), folder: filepath.Dir(lib.Path())}
		var err error
		if t.caps, err = lib.Resolve(t.Compiler); err != nil {
			incomplete = append(incomplete, err)
			continue
		}
		c.add(t, lib.Path())
	}
	if c.tools == nil && c.err == nil {
		c.err = errors.Join(incomplete...)
	}
	return c.err
}

func (c *compiler) add(t *tool, place string) {
	version := c.hip
	if version == "" {
		major, minor := new(int32), new(int32)
		t.Version(major, minor)
		t.version = int(*major)*1000 + int(*minor)*10
		version = versionText(c.family, t.version)
	}
	t.name = fmt.Sprintf("%s %s (%s)", c.family.Compiler, version, place)
	c.tools = append(c.tools, t)
	slices.SortStableFunc(c.tools, func(a, b *tool) int { return b.version - a.version })
}

// choose takes, for a device of a compute capability, 90 for 9.0, the newest library whose programs the driver loads.
func (c *compiler) choose(capability int) (choice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return choice{}, err
	}
	if c.hip != "" {
		return choice{tool: c.tools[0]}, nil
	}
	if x, ok := c.chosen[capability]; ok {
		return x, nil
	}
	var refused []error
	for _, t := range c.tools {
		target, err := t.target(capability)
		if err == nil {
			err = c.loads(t, target)
		}
		if err != nil {
			refused = append(refused, err)
			continue
		}
		t.findHeaders()
		if c.chosen == nil {
			c.chosen = map[int]choice{}
		}
		c.chosen[capability] = choice{t, target}
		return c.chosen[capability], nil
	}
	return choice{}, errors.Join(refused...)
}

// loads reports whether the driver loads what a library makes. A driver loads a device's own programs of all compilers
// of its major version and of earlier ones, and PTX of no compiler that's newer than itself.
func (c *compiler) loads(t *tool, target string) error {
	least := t.version
	if strings.HasPrefix(target, "sm_") {
		least -= least % 1000
	}
	if c.driver >= least {
		return nil
	}
	return fmt.Errorf("the driver, of CUDA %s, loads no programs for %s of %s: it must be of CUDA %s or later, or the "+
		"compiler earlier", versionText(c.family, c.driver), target, t.name, versionText(c.family, least))
}

// findHeaders opens a library with the headers, which the compiler looks for with the dynamic linker. That finds it
// where it lies by the compiler if it's there already. If it isn't, the compiler says so.
func (t *tool) findHeaders() {
	if t.folder != "" {
		own := filepath.Join(t.folder, "libnvrtc-builtins.so*")
		_, _ = dl.Source{Name: own, Candidates: []string{own}}.Open()
	}
}

// A CompileError is what a compiler said of a source.
type CompileError struct {
	Compiler string // with its version
	Outcome  abi.Outcome
	Text     string // what the compiler says of the outcome
	Log      string
}

func (e *CompileError) Error() string {
	s := fmt.Sprintf("%s: %s", e.Compiler, e.Text)
	if e.Log != "" {
		s += ":\n" + plain.Text(e.Log)
	}
	return s
}

// target is the architecture to compile for on a CUDA device of a compute capability. It's the device's own, whose code
// the driver needn't translate. Where the compiler doesn't know that, it's the latest earlier one that it knows, whose
// code the driver translates.
func (t *tool) target(capability int) (string, error) {
	if !t.caps.Has("binaries") {
		return fmt.Sprintf("compute_%d", capability), nil
	}
	n := new(int32)
	if o := t.ArchCount(n); o != abi.Compiled || *n <= 0 {
		return "", t.failed(o, "")
	}
	list := make([]int32, *n)
	if o := t.Architectures(&list[0]); o != abi.Compiled {
		return "", t.failed(o, "")
	}
	slices.Sort(list)
	at, known := slices.BinarySearch(list, int32(capability))
	switch {
	case known:
		return fmt.Sprintf("sm_%d", capability), nil
	case at == 0:
		return "", fmt.Errorf("%s compiles for devices of compute capability %d and later, and this one's is %d", t.name,
			list[0], capability)
	}
	return fmt.Sprintf("compute_%d", list[at-1]), nil
}

func (t *tool) failed(o abi.Outcome, log string) error {
	return &CompileError{Compiler: t.name, Outcome: o, Text: t.ErrorText(o), Log: log}
}

// compile makes a program of a source. The error is a [*CompileError] if the library had something to say.
func (c *compiler) compile(source []byte, by choice) ([]byte, error) {
	if c.hip != "" {
		c.single.Lock()
		defer c.single.Unlock()
	}
	t, p := by.tool, new(abi.Program)
	text, name := append(bytes.Clone(source), 0), []byte("module.cu\x00")
	if o := t.Create(p, &text[0], &name[0], 0, nil, nil); o != abi.Compiled {
		return nil, t.failed(o, "")
	}
	defer t.Destroy(p)
	var options **byte
	n := int32(0)
	if by.target != "" {
		option := append([]byte("--gpu-architecture="+by.target), 0)
		list := []*byte{&option[0]}
		options, n = &list[0], 1
	}
	if o := t.Compile(*p, n, options); o != abi.Compiled {
		log, _ := read(*p, t.LogSize, t.Log)
		return nil, t.failed(o, strings.TrimSpace(strings.TrimRight(string(log), "\x00")))
	}
	size, code := t.CodeSize, t.Code
	if strings.HasPrefix(by.target, "sm_") {
		size, code = t.CUBINSize, t.CUBIN
	}
	image, o := read(*p, size, code)
	if o == abi.Compiled && len(image) == 0 {
		return nil, fmt.Errorf("%s made an empty program for %q", t.name, by.target)
	}
	if o != abi.Compiled {
		return nil, t.failed(o, "")
	}
	return image, nil
}

func read(p abi.Program, size func(abi.Program, *uint64) abi.Outcome,
	get func(abi.Program, *byte) abi.Outcome) ([]byte, abi.Outcome) {
	n := new(uint64)
	if o := size(p, n); o != abi.Compiled || *n == 0 {
		return nil, o
	}
	b := make([]byte, *n)
	o := get(p, &b[0])
	return b, o
}

// ModuleCompiler is [driver.Compiler].ModuleCompiler.
func (d *Driver) ModuleCompiler(dev int) (string, error) {
	const op = "name the compiler"
	b, err := d.modular(op, dev)
	if err != nil {
		return "", err
	}
	by, err := b.compiler.choose(b.capability())
	if err != nil {
		return "", refused(b, op, err)
	}
	return by.name + " for " + b.Props.Name + " " + by.target, nil
}

// ModuleCompile is [driver.Compiler].ModuleCompile.
func (d *Driver) ModuleCompile(dev int, source []byte) ([]byte, error) {
	const op = "compile a source"
	b, err := d.modular(op, dev)
	if err != nil {
		return nil, err
	}
	return b.program(op, source)
}

func (b *gpu) capability() int { return b.Props.Major*10 + b.Props.Minor }

// refused is an error of the compiler as one of the device.
func refused(b *gpu, op string, err error) error {
	kind := driver.ErrUnsupported // there is no compiler, or none for the device
	if e := (*CompileError)(nil); errors.As(err, &e) {
		switch e.Outcome {
		case abi.CompilationError:
			kind = driver.ErrInvalidArgument
		case abi.NoBuiltins:
		default:
			kind = driver.ErrInternal
		}
	}
	return driver.Errorf(kind, b.Name, op, "a source, to be compiled: %w", err)
}

// program compiles a source for the GPU.
func (b *gpu) program(op string, source []byte) ([]byte, error) {
	by, err := b.compiler.choose(b.capability())
	if err != nil {
		return nil, refused(b, op, err)
	}
	var image []byte
	var failed error
	if err := b.call(op, "SetDevice", func() abi.Result { // hiprtc compiles for the device that's current
		image, failed = b.compiler.compile(source, by)
		return abi.Success
	}); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, refused(b, op, failed)
	}
	return image, nil
}

// attribute asks for one of the device's.
func (b *gpu) attribute(op string, which int32) (int, error) {
	v := new(int32)
	err := b.result(op, "DeviceGetAttribute", b.DeviceAttribute(v, which, b.id))
	return int(*v), err
}
