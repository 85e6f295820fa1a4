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

// compiler makes programs of sources: NVRTC or hiprtc, which is opened when the first source comes.
type compiler struct {
	family *abi.Family
	places []string
	hip    string // HIP's version, or empty for CUDA: hiprtc says that it is 9.0 in all releases from ROCm 5.2 to 6.4

	mu    sync.Mutex
	table *abi.Compiler
	caps  *dl.Capabilities
	name  string // with its version and place
	err   error  // why there is none
}

// suppliedCompiler is a compiler of a table that the caller has filled.
func suppliedCompiler(f *abi.Family, hip, place string, table abi.Compiler) (*compiler, error) {
	c := &compiler{family: f, hip: hip, table: &table}
	var err error
	if c.caps, err = dl.Supplied(f.Compiler, "unknown", place, &table); err == nil {
		c.describe(place)
	}
	return c, err
}

// open opens the compiler. It's locked.
func (c *compiler) open() error {
	if c.table != nil || c.err != nil {
		return c.err
	}
	lib, err := dl.Source{Name: c.family.Compiler, Candidates: c.places}.Open()
	if err != nil {
		c.err = err
		return err
	}
	// It looks for its own headers with the dynamic linker, which finds them where they lie by the compiler if they are
	// there already. If they aren't, the compiler says so.
	own := "lib" + strings.ToLower(c.family.Compiler) + "-builtins.so*"
	_, _ = dl.Source{Name: own, Candidates: []string{filepath.Join(filepath.Dir(lib.Path()), own)}}.Open()
	table := new(abi.Compiler)
	if c.caps, c.err = lib.Resolve(table); c.err != nil {
		return c.err
	}
	c.table = table
	c.describe(lib.Path())
	return nil
}

func (c *compiler) describe(place string) {
	version := c.hip
	if version == "" {
		major, minor := new(int32), new(int32)
		c.table.Version(major, minor)
		version = fmt.Sprintf("%d.%d", *major, *minor)
	}
	c.name = fmt.Sprintf("%s %s (%s)", c.family.Compiler, version, place)
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

// target is the architecture to compile for on a CUDA device of a compute capability, 90 for 9.0. It's the device's
// own, whose code the driver needn't translate. Where the compiler doesn't know that, it's the latest earlier one that
// it knows, whose code the driver translates.
func (c *compiler) target(capability int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return "", err
	}
	if !c.caps.Has("binaries") {
		return fmt.Sprintf("compute_%d", capability), nil
	}
	n := new(int32)
	if o := c.table.ArchCount(n); o != abi.Compiled || *n <= 0 {
		return "", c.failed(o, "")
	}
	list := make([]int32, *n)
	if o := c.table.Architectures(&list[0]); o != abi.Compiled {
		return "", c.failed(o, "")
	}
	slices.Sort(list)
	at, known := slices.BinarySearch(list, int32(capability))
	switch {
	case known:
		return fmt.Sprintf("sm_%d", capability), nil
	case at == 0:
		return "", fmt.Errorf("%s compiles for devices of compute capability %d and later, and this one's is %d", c.name,
			list[0], capability)
	}
	return fmt.Sprintf("compute_%d", list[at-1]), nil
}

func (c *compiler) failed(o abi.Outcome, log string) error {
	return &CompileError{Compiler: c.name, Outcome: o, Text: c.table.ErrorText(o), Log: log}
}

// compile makes a program of a source, for "sm_90" one of the device's, for "compute_90" PTX, and for "" one for the
// device that's current. The error is a [*CompileError] if the compiler had something to say.
func (c *compiler) compile(source []byte, target string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return nil, err
	}
	t, p := c.table, new(abi.Program)
	text, name := append(bytes.Clone(source), 0), []byte("module.cu\x00")
	if o := t.Create(p, &text[0], &name[0], 0, nil, nil); o != abi.Compiled {
		return nil, c.failed(o, "")
	}
	defer t.Destroy(p)
	var options **byte
	n := int32(0)
	if target != "" {
		option := append([]byte("--gpu-architecture="+target), 0)
		list := []*byte{&option[0]}
		options, n = &list[0], 1
	}
	if o := t.Compile(*p, n, options); o != abi.Compiled {
		log, _ := read(*p, t.LogSize, t.Log)
		return nil, c.failed(o, strings.TrimSpace(strings.TrimRight(string(log), "\x00")))
	}
	size, code := t.CodeSize, t.Code
	if strings.HasPrefix(target, "sm_") {
		size, code = t.CUBINSize, t.CUBIN
	}
	image, o := read(*p, size, code)
	if o == abi.Compiled && len(image) == 0 {
		return nil, fmt.Errorf("%s made an empty program for %q", c.name, target)
	}
	if o != abi.Compiled {
		return nil, c.failed(o, "")
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
	b.compiler.mu.Lock()
	err = b.compiler.open()
	name := b.compiler.name
	b.compiler.mu.Unlock()
	if err != nil {
		return "", driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	target, err := b.target(op)
	if err != nil {
		return "", err
	}
	return name + " for " + b.Props.Name + " " + target, nil
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

// target is the architecture to compile for: of CUDA's compilers, or empty for hiprtc, which takes the current
// device's.
func (b *gpu) target(op string) (string, error) {
	if b.family.Name != "cuda" {
		return "", nil
	}
	target, err := b.compiler.target(b.Props.Major*10 + b.Props.Minor)
	if err != nil {
		return "", refused(b, op, err)
	}
	return target, nil
}

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
	target, err := b.target(op)
	if err != nil {
		return nil, err
	}
	var image []byte
	var failed error
	if err := b.call(op, "SetDevice", func() abi.Result { // hiprtc compiles for the device that's current
		image, failed = b.compiler.compile(source, target)
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
