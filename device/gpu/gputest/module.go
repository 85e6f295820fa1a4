//go:build linux

package gputest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// magic begins the library's images. The emulated device's image follows, up to a 0.
const magic = "\x7fSIM"

// Image is what the library loads of an image of emulated devices, the name of a module for example.
func Image(image []byte) []byte { return append(append([]byte(magic), image...), 0) }

func (l *Library) moduleLoad(m *abi.Module, image *byte) abi.Result {
	return l.on(func(dev int) abi.Result {
		text, ok := bytes.CutPrefix([]byte(unix.BytePtrToString(image)), []byte(magic))
		if !ok {
			return abi.InvalidImage
		}
		h, err := l.driver.ModuleLoad(dev, text)
		return give(m, h, err)
	})
}

// moduleLoadEx writes a log, as the options must say, of what isn't loaded.
func (l *Library) moduleLoadEx(m *abi.Module, image *byte, n uint32, options *int32, values *uintptr) abi.Result {
	if n != 2 || !slices.Equal(unsafe.Slice(options, n), []int32{abi.JITErrorLog, abi.JITErrorLogBytes}) {
		return abi.InvalidValue
	}
	r := l.moduleLoad(m, image)
	if r != abi.Success {
		log := unsafe.Slice(*(**byte)(unsafe.Pointer(values)), unsafe.Slice(values, n)[1])
		copy(log, "fatal: no image of the stand-in\x00")
	}
	return r
}

func (l *Library) functionAttribute(v *int32, attr int32, f abi.Function) abi.Result {
	a, err := l.driver.FunctionAttributes(driver.FunctionHandle(f))
	if err != nil {
		return result(err)
	}
	x, ok := map[int32]int{abi.FunctionMaxThreads: a.MaxThreads, abi.FunctionShared: a.SharedBytes,
		abi.FunctionLocal: a.LocalBytes, abi.FunctionRegisters: a.Registers}[attr]
	if !ok {
		return abi.InvalidValue
	}
	*v = int32(x)
	return abi.Success
}

// parameters says where a function has its parameters, and how long they are.
func (l *Library) parameters(f abi.Function) ([]driver.Param, error) {
	a, err := l.driver.FunctionAttributes(driver.FunctionHandle(f))
	var all []driver.Param
	at := 0
	for _, kind := range a.Params {
		size, align := 8, 8
		switch kind {
		case driver.ParamInt32, driver.ParamUint32, driver.ParamFloat32:
			size, align = 4, 4
		case driver.ParamBytes:
			size = l.opts.StructBytes
		}
		at = (at + align - 1) / align * align
		all = append(all, driver.Param{Kind: kind, Offset: at, Bytes: size})
		at += size
	}
	return all, err
}

func (l *Library) functionParameter(f abi.Function, i uint64, at, n *uint64) abi.Result {
	all, err := l.parameters(f)
	switch {
	case err != nil:
		return result(err)
	case i >= uint64(len(all)):
		return abi.InvalidValue
	}
	*at, *n = uint64(all[i].Offset), uint64(all[i].Bytes)
	return abi.Success
}

// launch reads the arguments, as many as the function has parameters, where the pointers say.
func (l *Library) launch(f abi.Function, gx, gy, gz, bx, by, bz, shared uint32, s abi.Stream,
	args, extra *unsafe.Pointer) abi.Result {
	run := func(int) abi.Result {
		params, err := l.parameters(f)
		if err != nil {
			return result(err)
		}
		grid, block := [3]uint64{uint64(gx), uint64(gy), uint64(gz)}, [3]uint64{uint64(bx), uint64(by), uint64(bz)}
		if extra != nil || !l.launchable(grid, block) {
			return abi.InvalidValue
		}
		list := new(driver.Args)
		for i, p := range params {
			b := unsafe.Slice((*byte)(unsafe.Slice(args, len(params))[i]), p.Bytes)
			switch word := binary.NativeEndian; p.Kind {
			case driver.ParamPointer:
				list.Pointer(driver.Ptr(word.Uint64(b)))
			case driver.ParamInt32:
				list.Int32(int32(word.Uint32(b)))
			case driver.ParamUint32:
				list.Uint32(word.Uint32(b))
			case driver.ParamInt64:
				list.Int64(int64(word.Uint64(b)))
			case driver.ParamUint64:
				list.Uint64(word.Uint64(b))
			case driver.ParamFloat32:
				list.Float32(*(*float32)(unsafe.Pointer(&b[0])))
			case driver.ParamFloat64:
				list.Float64(*(*float64)(unsafe.Pointer(&b[0])))
			default:
				list.Bytes(b, 8)
			}
		}
		return result(l.driver.FunctionLaunch(driver.StreamHandle(s), driver.FunctionHandle(f), driver.Launch{
			Grid: driver.Dim{X: int(gx), Y: int(gy), Z: int(gz)}, Block: driver.Dim{X: int(bx), Y: int(by), Z: int(bz)},
			Shared: int(shared), Args: list}))
	}
	if f < firstKernel {
		return l.on(run)
	}
	if r := l.codes.function(l, &f, s); r != abi.Success {
		return r
	}
	return run(0)
}

// launchable reports whether a launch is within the vendor's limits: of CUDA's blocks in each dimension, and of HIP's
// threads in each dimension.
func (l *Library) launchable(grid, block [3]uint64) bool {
	most := [3]uint64{math.MaxInt32, math.MaxUint16, math.MaxUint16}
	for k, n := range grid {
		threads := n * block[k]
		if threads == 0 || n > most[k] || l.opts.Name == "hip" && threads > math.MaxUint32 {
			return false
		}
	}
	return true
}

// Compiler is a stand-in for the compiler of sources: a source is an image of emulated devices, and its program the
// library's image of it. All else doesn't compile.
func (l *Library) Compiler() abi.Compiler {
	var mu sync.Mutex
	all := map[abi.Program]string{}
	last := abi.Program(0)
	of := func(p abi.Program) string {
		mu.Lock()
		defer mu.Unlock()
		return all[p]
	}
	log := func(p abi.Program) []byte {
		return []byte("module.cu(1): error: " + of(p) + " is no module of emulated devices\x00")
	}
	code := func(p abi.Program) []byte { return Image([]byte(of(p))) }
	size := func(of func(abi.Program) []byte) func(abi.Program, *uint64) abi.Outcome {
		return func(p abi.Program, n *uint64) abi.Outcome { *n = uint64(len(of(p))); return abi.Compiled }
	}
	get := func(of func(abi.Program) []byte) func(abi.Program, *byte) abi.Outcome {
		return func(p abi.Program, to *byte) abi.Outcome {
			copy(unsafe.Slice(to, len(of(p))), of(p))
			return abi.Compiled
		}
	}
	c := abi.Compiler{
		Version: func(major, minor *int32) abi.Outcome { *major, *minor = 12, 4; return abi.Compiled },
		ErrorText: func(o abi.Outcome) string {
			if o == abi.CompilationError {
				return "NVRTC_ERROR_COMPILATION"
			}
			return o.String()
		},
		Create: func(p *abi.Program, source, _ *byte, _ int32, _, _ **byte) abi.Outcome {
			mu.Lock()
			defer mu.Unlock()
			last++
			all[last], *p = unix.BytePtrToString(source), last
			return abi.Compiled
		},
		Destroy: func(p *abi.Program) abi.Outcome {
			mu.Lock()
			defer mu.Unlock()
			delete(all, *p)
			return abi.Compiled
		},
		Compile: func(p abi.Program, n int32, _ **byte) abi.Outcome {
			_, current := l.Current()
			m, err := l.driver.ModuleLoad(0, []byte(of(p)))
			if err != nil || !current || (n == 1) != (l.opts.Name == "cuda") {
				return abi.CompilationError
			}
			_ = l.driver.ModuleUnload(m)
			return abi.Compiled
		},
		LogSize: size(log), Log: get(log), CodeSize: size(code), Code: get(code),
	}
	if l.opts.Name == "cuda" {
		c.CUBINSize, c.CUBIN = size(code), get(code)
		c.ArchCount = func(n *int32) abi.Outcome { *n = 2; return abi.Compiled }
		c.Architectures = func(list *int32) abi.Outcome { copy(unsafe.Slice(list, 2), []int32{75, 90}); return abi.Compiled }
	}
	return c
}

// moduleTable fills in the functions of modules.
func (l *Library) moduleTable(t *abi.Table) {
	d := l.driver
	t.ModuleLoad, t.ModuleLoadEx = l.moduleLoad, l.moduleLoadEx
	t.ModuleUnload = func(m abi.Module) abi.Result {
		return l.on(func(int) abi.Result { return result(d.ModuleUnload(driver.ModuleHandle(m))) })
	}
	t.ModuleFunction = func(f *abi.Function, m abi.Module, name *byte) abi.Result {
		h, err := d.ModuleFunction(driver.ModuleHandle(m), unix.BytePtrToString(name))
		return give(f, h, err)
	}
	t.FunctionAttribute, t.FunctionParameter, t.FunctionLaunch = l.functionAttribute, l.functionParameter, l.launch
	l.codeTable(t)
	t.FunctionSet = func(_ abi.Function, attr, v int32) abi.Result {
		if attr != abi.FunctionDynamic || v > l.attributes()[abi.CUDASharedAtMost] {
			return abi.InvalidValue
		}
		return abi.Success
	}
}
