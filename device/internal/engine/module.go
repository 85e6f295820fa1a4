package engine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// MaxThreads is how many threads a block of an emulated device may have, and sharedBytes how much shared memory. They
// are what GPUs of today have at least.
const (
	MaxThreads  = 1024
	sharedBytes = 48 << 10
)

// A Function is a compiled kernel of an emulated device: a Go function, which runs once for each block of a grid, one
// after the other.
type Function struct {
	Params     []driver.ParamKind
	Shared     int // bytes of static shared memory of a block
	MaxThreads int // of a block; MaxThreads if 0
	Run        func(b *Block) error
}

func (f *Function) maxThreads() int {
	if f.MaxThreads == 0 {
		return MaxThreads
	}
	return f.MaxThreads
}

// A Block is one block of a launch, as its kernel sees it. It's good until the kernel returns.
type Block struct {
	Index, Grid driver.Dim // which block of how many
	Threads     driver.Dim
	Shared      []byte // static shared memory and then dynamic, zero at first

	launch *launched
	views  []unsafe.Pointer
}

// launched is what a launch keeps of its arguments.
type launched struct {
	f       *Function
	name    string
	shape   driver.Launch
	args    []byte
	params  []driver.Param
	span    []int // by parameter: its operand, -1 if it has none
	lengths []int // by operand, in bytes
}

// Memory returns what the pointer argument i points to, up to the end of its allocation; nil for null. Touching what
// lies beyond panics, and so fails the launch.
func (b *Block) Memory(i int) []byte {
	l := b.launch
	l.check(i, driver.ParamPointer)
	n := l.span[i]
	if n < 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.views[n]), l.lengths[n])
}

// Int32 returns argument i, which is an int32.
func (b *Block) Int32(i int) int32 { return int32(b.word(i, driver.ParamInt32)) }

// Int64 returns argument i, which is an int64.
func (b *Block) Int64(i int) int64 { return int64(b.word(i, driver.ParamInt64)) }

// Uint32 returns argument i, which is a uint32.
func (b *Block) Uint32(i int) uint32 { return uint32(b.word(i, driver.ParamUint32)) }

// Uint64 returns argument i, which is a uint64.
func (b *Block) Uint64(i int) uint64 { return b.word(i, driver.ParamUint64) }

// Float32 returns argument i, which is a float32.
func (b *Block) Float32(i int) float32 {
	return math.Float32frombits(uint32(b.word(i, driver.ParamFloat32)))
}

// Float64 returns argument i, which is a float64.
func (b *Block) Float64(i int) float64 { return math.Float64frombits(b.word(i, driver.ParamFloat64)) }

// Struct returns argument i, which is a struct. It must not be changed.
func (b *Block) Struct(i int) []byte {
	l := b.launch
	l.check(i, driver.ParamBytes)
	return l.args[l.params[i].Offset:][:l.params[i].Bytes]
}

func (b *Block) word(i int, kind driver.ParamKind) uint64 {
	l := b.launch
	l.check(i, kind)
	at := l.args[l.params[i].Offset:]
	if l.params[i].Bytes == 4 {
		return uint64(binary.NativeEndian.Uint32(at))
	}
	return binary.NativeEndian.Uint64(at)
}

func (l *launched) check(i int, kind driver.ParamKind) {
	if l.params[i].Kind != kind {
		panic(fmt.Sprintf("%s: argument %d is a %v, and is used as a %v", l.name, i, l.params[i].Kind, kind))
	}
}

// run executes all blocks.
func (l *launched) run(views []unsafe.Pointer) error {
	grid := l.shape.Grid
	b := &Block{Grid: grid, Threads: l.shape.Block, Shared: make([]byte, l.f.Shared+l.shape.Shared), launch: l,
		views: views}
	for z := range grid.Z {
		for y := range grid.Y {
			for x := range grid.X {
				b.Index = driver.Dim{X: x, Y: y, Z: z}
				clear(b.Shared)
				if err := l.f.Run(b); err != nil {
					return fmt.Errorf("block (%d, %d, %d): %w", x, y, z, err)
				}
			}
		}
	}
	return nil
}

// images are the modules of the process that emulated devices can load, by name.
var images struct {
	sync.RWMutex
	m map[string]map[string]*Function
}

// RegisterModule makes functions loadable as a module of that name. It panics if there is one already, or a function
// can't run.
func RegisterModule(name string, functions map[string]Function) {
	m := map[string]*Function{}
	for n, f := range functions {
		if f.Run == nil || f.Shared < 0 || f.Shared > sharedBytes || f.MaxThreads < 0 || f.MaxThreads > MaxThreads {
			panic(fmt.Sprintf("module %q: function %q can't run", name, n))
		}
		m[n] = &f
	}
	images.Lock()
	defer images.Unlock()
	if images.m[name] != nil {
		panic(fmt.Sprintf("module %q is registered already", name))
	}
	if images.m == nil {
		images.m = map[string]map[string]*Function{}
	}
	images.m[name] = m
}

type module struct {
	base.Entry[driver.ModuleHandle, *module]
	dev       *dev
	name      string
	functions map[string]*Function
	found     map[driver.FunctionHandle]*function // guarded by the engine's modmu
}

type function struct {
	base.Entry[driver.FunctionHandle, *function]
	module *module
	name   string
	f      *Function
}

// ModuleLoad is [driver.Modules].ModuleLoad. An image is the name of a registered module.
func (e *Engine) ModuleLoad(index int, image []byte) (driver.ModuleHandle, error) {
	d, err := e.dev("load a module", index)
	if err != nil {
		return 0, err
	}
	images.RLock()
	functions := images.m[string(image)]
	known := slices.Sorted(maps.Keys(images.m))
	images.RUnlock()
	if functions == nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name, "load a module",
			"%.40q is no module that is registered in this process; there are %q", image, known)
	}
	m := &module{dev: d, name: string(image), functions: functions, found: map[driver.FunctionHandle]*function{}}
	return e.modules.Add(m), nil
}

// ModuleUnload is [driver.Modules].ModuleUnload.
func (e *Engine) ModuleUnload(h driver.ModuleHandle) error {
	e.modmu.Lock()
	defer e.modmu.Unlock()
	m, err := e.modules.Take("unload a module", h)
	if err != nil {
		return err
	}
	for f, v := range m.found {
		e.functions.Drop(f, v)
	}
	return nil
}

// ModuleFunction is [driver.Modules].ModuleFunction.
func (e *Engine) ModuleFunction(h driver.ModuleHandle, name string) (driver.FunctionHandle, error) {
	e.modmu.Lock()
	defer e.modmu.Unlock()
	m, err := e.modules.Find("look up a function", h)
	if err != nil {
		return 0, err
	}
	f := m.functions[name]
	if f == nil {
		return 0, driver.Errorf(driver.ErrNotFound, m.dev.name, "look up a function", "module %q has no function %q, but %s",
			m.name, name, strings.Join(slices.Sorted(maps.Keys(m.functions)), ", "))
	}
	v := &function{module: m, name: name, f: f}
	fh := e.functions.Add(v)
	m.found[fh] = v
	return fh, nil
}

// FunctionAttributes is [driver.Modules].FunctionAttributes.
func (e *Engine) FunctionAttributes(h driver.FunctionHandle) (driver.FunctionAttributes, error) {
	f, err := e.functions.Find("attributes of a function", h)
	if err != nil {
		return driver.FunctionAttributes{}, err
	}
	params := append([]driver.ParamKind{}, f.f.Params...)
	return driver.FunctionAttributes{Name: f.name, Params: params, MaxThreads: f.f.maxThreads(), SharedBytes: f.f.Shared},
		nil
}

// FunctionLaunch is [driver.Modules].FunctionLaunch.
func (e *Engine) FunctionLaunch(s driver.StreamHandle, h driver.FunctionHandle, l driver.Launch) error {
	st, err := e.streams.Find("launch", s)
	if err != nil {
		return err
	}
	f, err := e.functions.Find("launch", h)
	if err != nil {
		return err
	}
	if f.module.dev != st.dev {
		return driver.Errorf(driver.ErrWrongDevice, st.dev.name, "launch "+f.name,
			"the function's module is loaded on another device")
	}
	k, spans, err := e.prepare(st.dev, f, l)
	if err != nil {
		return err
	}
	return e.submit("launch", s, work{kind: driver.ActivityKernel, name: f.name, operands: spans, kernel: k.run})
}

// prepare checks a launch and copies its arguments.
func (e *Engine) prepare(d *dev, f *function, l driver.Launch) (*launched, []driver.Span, error) {
	refuse := func(format string, args ...any) (*launched, []driver.Span, error) {
		return nil, nil, driver.Errorf(driver.ErrInvalidArgument, d.name, "launch "+f.name, format, args...)
	}
	l.Grid, l.Block = l.Grid.OrOne(), l.Block.OrOne()
	const most = math.MaxInt32
	for _, n := range []int{l.Grid.X, l.Grid.Y, l.Grid.Z, l.Block.X, l.Block.Y, l.Block.Z} {
		if n < 0 || n > most {
			return refuse("a grid of %v blocks of %v threads", l.Grid, l.Block)
		}
	}
	if b := l.Block; b.X > MaxThreads || b.Y > MaxThreads || b.Z > MaxThreads || b.Count() > f.f.maxThreads() {
		return refuse("blocks of %v threads, of which it runs %d at most", l.Block, f.f.maxThreads())
	}
	if l.Shared < 0 || l.Shared > sharedBytes-f.f.Shared {
		return refuse("%d bytes of shared memory besides its own %d; there are %d", l.Shared, f.f.Shared, sharedBytes)
	}
	buf, params := l.Args.Packed()
	if len(params) != len(f.f.Params) {
		return refuse("%d arguments, and it has %d parameters", len(params), len(f.f.Params))
	}
	k := &launched{f: f.f, name: f.name, shape: l, args: slices.Clone(buf), params: slices.Clone(params), span: make([]int,
		len(params))}
	k.shape.Args = nil
	var spans []driver.Span
	for i, p := range params {
		if p.Kind != f.f.Params[i] {
			return refuse("argument %d is a %v, and the parameter a %v", i, p.Kind, f.f.Params[i])
		}
		k.span[i] = -1
		if p.Kind != driver.ParamPointer {
			continue
		}
		if at := driver.Ptr(binary.NativeEndian.Uint64(buf[p.Offset:])); at != 0 {
			n, err := e.beyond(at)
			if err != nil {
				return nil, nil, fmt.Errorf("argument %d of %s: %w", i, f.name, err)
			}
			k.span[i] = len(spans)
			spans = append(spans, driver.Span{Ptr: at, Bytes: n})
			k.lengths = append(k.lengths, n)
		}
	}
	return k, spans, nil
}

// beyond is how many bytes an allocation has from p on; 0 if p is no memory that the driver knows.
func (sp *Space) beyond(p driver.Ptr) (int, error) {
	at, err := sp.Attributes(p)
	if err != nil {
		return 0, err
	}
	return max(0, int(uintptr(at.Base))+at.Bytes-int(uintptr(p))), nil
}
