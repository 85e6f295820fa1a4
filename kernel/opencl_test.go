package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// cl is what the tests need of an OpenCL device that shares the host's memory.
type cl struct {
	lib                    *dl.Library
	device, context, queue uintptr
	kernels                map[Spec]uintptr
}

func (c *cl) call(name string, args ...uintptr) uintptr {
	f, ok := c.lib.Symbol(name)
	if !ok {
		panic(name)
	}
	return dl.Func(f).Call(args...)
}

func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

var (
	clOnce sync.Once
	clTest *cl
	clErr  error
)

// openCL is PoCL, of the tests' Python packages or the machine.
func openCL(t testing.TB) *cl {
	clOnce.Do(func() { clTest, clErr = openCLOnce(testutil.ModuleRoot(t)) })
	if clErr != nil {
		t.Skip("left out: ", clErr)
	}
	return clTest
}

func openCLOnce(root string) (*cl, error) {
	libs := filepath.Join(root, ".venv/lib/python3*/site-packages/pyopencl/.libs")
	icd, _ := filepath.Glob(filepath.Join(libs, "libpocl*.so*"))
	if len(icd) > 0 && os.Getenv("OCL_ICD_VENDORS") == "" { // the loader reads C's environment, which isn't Go's
		dir, err := os.MkdirTemp("", "icd")
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "pocl.icd"), []byte(icd[0]+"\n"), 0o600); err != nil {
			return nil, err
		}
		libc, err := dl.Source{Name: "C", Candidates: []string{"libc.so.6"}}.Open()
		if err != nil {
			return nil, err
		}
		setenv, _ := libc.Symbol("setenv")
		name, value := []byte("OCL_ICD_VENDORS\x00"), []byte(dir+"\x00")
		dl.Func(setenv).Call(addr(&name[0]), addr(&value[0]), 1)
	}
	lib, err := dl.Source{Name: "OpenCL", Candidates: []string{"libOpenCL.so.1"}}.Open()
	if err != nil {
		return nil, err
	}
	c := &cl{lib: lib, kernels: map[Spec]uintptr{}}
	var platform, device uintptr
	var n, outcome uint32
	if e := c.call("clGetPlatformIDs", 1, addr(&platform), addr(&n)); e != 0 || n == 0 {
		return nil, fmt.Errorf("OpenCL has no platform: %d", int32(e))
	}
	if e := c.call("clGetDeviceIDs", platform, 0xffffffff, 1, addr(&device), addr(&n)); e != 0 {
		return nil, fmt.Errorf("OpenCL has no device: %d", int32(e))
	}
	c.device = device
	c.context = c.call("clCreateContext", 0, 1, addr(&device), 0, 0, addr(&outcome))
	c.queue = c.call("clCreateCommandQueue", c.context, device, 0, addr(&outcome))
	return c, nil
}

// build compiles a source; the text of the error has the compiler's log.
func (c *cl) build(src Source) (uintptr, error) {
	text := append([]byte(src.For(OpenCL)), 0)
	p := &text[0]
	var outcome int32
	program := c.call("clCreateProgramWithSource", c.context, 1, addr(&p), 0, addr(&outcome))
	options := append([]byte("-cl-std=CL1.2 -w"), 0)
	if e := c.call("clBuildProgram", program, 1, addr(&c.device), addr(&options[0]), 0, 0); e != 0 {
		log, n := make([]byte, 1<<16), uintptr(0)
		c.call("clGetProgramBuildInfo", program, c.device, 0x1183, uintptr(len(log)), addr(&log[0]), addr(&n))
		return 0, &CompileError{Source: src.For(OpenCL), Log: strings.TrimRight(string(log[:n]), "\x00\n")}
	}
	name := append([]byte(src.Entry), 0)
	k := c.call("clCreateKernel", program, addr(&name[0]), addr(&outcome))
	if outcome != 0 {
		return 0, fmt.Errorf("no kernel %s: %d", src.Entry, outcome)
	}
	return k, nil
}

// alloc returns memory that kernels can touch, filled with 0xa5.
func (c *cl) alloc(bytes int) []byte {
	p := c.call("clSVMAlloc", c.context, 1, uintptr(max(bytes, 1)), 64)
	if p == 0 {
		panic("clSVMAlloc")
	}
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), bytes)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

func (c *cl) free(b []byte) {
	c.call("clSVMFree", c.context, addr(unsafe.SliceData(b)))
}

// run runs a plan's calls.
func (c *cl) run(p *Plan) error {
	for k := range p.Calls {
		call := &p.Calls[k]
		f, ok := c.kernels[call.Spec]
		if !ok {
			src, err := call.Spec.Source()
			if err != nil {
				return err
			}
			if f, err = c.build(src); err != nil {
				return err
			}
			c.kernels[call.Spec] = f
		}
		b, params := call.Args.Packed()
		for i, a := range params {
			var e uintptr
			if a.Kind == device.ParamPointer {
				e = c.call("clSetKernelArgSVMPointer", f, uintptr(i), *(*uintptr)(unsafe.Pointer(&b[a.Offset])))
			} else {
				e = c.call("clSetKernelArg", f, uintptr(i), uintptr(a.Bytes), addr(&b[a.Offset]))
			}
			if e != 0 {
				return fmt.Errorf("%v: argument %d: %d", call.Spec, i, int32(e))
			}
		}
		grid := [3]uintptr{uintptr(call.Grid.X * call.Block.X), uintptr(call.Grid.Y), uintptr(call.Grid.Z)}
		block := [3]uintptr{uintptr(call.Block.X), 1, 1}
		if e := c.call("clEnqueueNDRangeKernel", c.queue, f, 3, 0, addr(&grid[0]), addr(&block[0]), 0, 0, 0); e != 0 {
			return fmt.Errorf("%v: launch: %d", call.Spec, int32(e))
		}
	}
	if e := c.call("clFinish", c.queue); e != 0 {
		return fmt.Errorf("finish: %d", int32(e))
	}
	return nil
}
