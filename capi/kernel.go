//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/capi/kernels"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kernel"
	"github.com/chorus-comms/chorus/kernel/loader"
	kerneltext "github.com/chorus-comms/chorus/kernel/text"
	"github.com/chorus-comms/chorus/kernel/user"
)

// loaders has the loader of each device that has run a kernel.
var loaders struct {
	sync.Mutex
	of map[*device.Device]*loader.Loader
}

// loaderOf is the device's loader, with the cache on disk that the configuration names.
func loaderOf(d *device.Device) (*loader.Loader, error) {
	loaders.Lock()
	defer loaders.Unlock()
	if l := loaders.of[d]; l != nil {
		return l, nil
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, refused("%v", err)
	}
	l, err := loader.New(d, loader.OpenDisk(cfg))
	if err != nil {
		return nil, err
	}
	if cfg.KernelAhead {
		l.CompileAhead()
	}
	if cfg.KernelProgress && sys.IsTerminal(2) {
		loader.Compiling.Show(os.Stderr)
	}
	if loaders.of == nil {
		loaders.of = map[*device.Device]*loader.Loader{}
	}
	loaders.of[d] = l
	return l, nil
}

// settle waits for kernels of the device that are compiled ahead of their use.
func settle(ctx context.Context, d *device.Device) error {
	loaders.Lock()
	l := loaders.of[d]
	loaders.Unlock()
	if l == nil {
		return nil
	}
	return l.Settle(ctx)
}

// loader is that of the stream's device.
func (s *stream) loader() (*loader.Loader, error) {
	if l := s.kernels.Load(); l != nil {
		return l, nil
	}
	l, err := loaderOf(s.Device())
	if err == nil {
		s.kernels.Store(l)
	}
	return l, err
}

//export goKernelFind
func goKernelFind(kind C.int32_t, name *C.char, op *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || op == nil {
		return fail(refused("chorus_kernel_find got NULL"))
	}
	*op = 0
	wanted := C.GoString(name)
	if kind == C.CHORUS_KERNEL_ELEMENTWISE && kerneltext.IsUser(wanted) {
		n, err := userKernels.add(wanted, userKernel)
		*op = n
		return fail(err)
	}
	if n := kernels.Find(int(kind), wanted); n > 0 {
		*op = C.int32_t(n)
		return C.CHORUS_OK
	}
	return fail(noKernel(fmt.Errorf("there is no operation %q of kind %d", wanted, int(kind))))
}

//export goKernelGet
func goKernelGet(h C.chorus_device, info *C.chorus_kernel_info) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && info == nil {
		err = refused("chorus_kernel_get got NULL")
	}
	if err == nil {
		err = sized("chorus_kernel_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	l, err := loaderOf(d)
	if err != nil {
		return fail(err)
	}
	s := l.Stats()
	*info = C.chorus_kernel_info{size: info.size, compiled: C.int64_t(s.Compiled), from_disk: C.int64_t(s.FromDisk),
		refused: C.int64_t(s.Refused), launched: C.int64_t(s.Launched),
		multiplied: C.int64_t(s.Multiplied), transformed: C.int64_t(s.Transformed),
		solved: C.int64_t(s.Solved)}
	cfg, err := config.Load(nil)
	if err != nil {
		return fail(refused("%v", err))
	}
	if !cfg.DeviceKernels {
		info.off = 1
	}
	if l.GEMMVaries() {
		info.varies = 1
	}
	return C.CHORUS_OK
}

// userKernels are users' texts that were found.
var userKernels = numbered[string]{first: 1 << 20}

// userKernel checks a user's text.
func userKernel(text string) (string, error) {
	if _, _, err := user.Operands(text); err != nil {
		return "", refused("%v", err)
	}
	return text, nil
}

// operationOf is the operation of a number of chorus_kernel_find, with its name.
func operationOf(kind, op C.int32_t) (*kernels.Operation, string, error) {
	if kind == C.CHORUS_KERNEL_ELEMENTWISE && op >= userKernels.first {
		if text, ok := userKernels.find(op); ok {
			return kernels.Numbered(int(kind), 1), text, nil
		}
	} else if o := kernels.Numbered(int(kind), int(op)); o != nil {
		return o, o.Name, nil
	}
	return nil, "", refused("a kernel of kind %d and operation %d", int(kind), int(op))
}

// noKernel is an error of package kernel as one that has enqueued nothing, so that the caller does without.
func noKernel(err error) error { return fmt.Errorf("chorus: %w: %w", errors.ErrUnsupported, err) }

// Most of what a kernel takes, and one of lists.
const (
	kernelOperands = 8 // results, and inputs
	kernelNumbers  = 16
	kernelIntegers = 64
	kernelDims     = 64 // of an operand
	mostListed     = 1 << 20
)

// kernelCall is a chorus_kernel as package kernel takes it. It's used again.
type kernelCall struct {
	kernels.Call
	values []kernel.Number // of operands, and the call's

	stream *device.Stream
	memory []device.Ptr // scratch
}

var kernelCalls = sync.Pool{New: func() any {
	c := &kernelCall{}
	c.Plan.Scratch = func(bytes int) (device.Ptr, error) {
		p, err := c.stream.Device().Alloc(bytes, c.stream)
		if err == nil && p != 0 {
			c.memory = append(c.memory, p)
		}
		return p, err
	}
	return c
}}

//export goKernelRun
func goKernelRun(h C.chorus_stream, k *C.chorus_kernel) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && k == nil {
		err = refused("chorus_kernel_run got NULL")
	}
	if err == nil {
		err = sized("chorus_kernel", k.size, unsafe.Sizeof(*k))
	}
	if err != nil {
		return fail(err)
	}
	l, err := s.loader()
	if err != nil {
		return fail(err)
	}
	c := kernelCalls.Get().(*kernelCall)
	c.stream, c.Plan.Cores, c.Plan.GEMM = s.Stream, l.Cores(), l.GEMM()
	c.Plan.Offsets = l.Offsets()
	err = c.run(l, k)
	for _, p := range c.memory {
		err = errors.Join(err, s.Device().Dealloc(p)) // which waits for the stream's work
	}
	c.Plan.Reset()
	clear(c.Outs)
	clear(c.Ins)
	c.stream, c.memory = nil, c.memory[:0]
	kernelCalls.Put(c)
	return fail(err)
}

// run enqueues the kernels of an operation.
func (c *kernelCall) run(l *loader.Loader, k *C.chorus_kernel) error {
	o, name, err := operationOf(C.int32_t(k.kind), C.int32_t(k.op))
	if err == nil {
		err = c.read(k, o)
	}
	if err != nil {
		return err
	}
	return c.enqueue(l, c.Add(o, name, l))
}

// enqueue runs the plan, unless adding to it has had an error.
func (c *kernelCall) enqueue(l *loader.Loader, err error) error {
	switch {
	case errors.Is(err, kernels.ErrArguments):
		return refused("%v", err)
	case errors.Is(err, device.ErrOutOfMemory): // of scratch memory
		return err
	case err != nil:
		return noKernel(err)
	}
	return runCalls(l, c.stream, c.Plan.Calls)
}

// runCalls enqueues calls. A source that doesn't compile leaves none of them enqueued.
func runCalls(l *loader.Loader, s *device.Stream, calls []loader.Call) error {
	err := l.Run(s, calls)
	if _, is := errors.AsType[*loader.CompileError](err); is {
		return noKernel(err)
	}
	return err
}

// read takes the arguments.
func (c *kernelCall) read(k *C.chorus_kernel, o *kernels.Operation) error {
	operands, numbers := kernelOperands, kernelNumbers
	if o.Lists {
		operands, numbers = mostListed, mostListed
	}
	if err := errors.Join(counted("operands", k.outs, k.n_outs, operands), counted("operands", k.ins, k.n_ins, operands),
		counted("numbers", k.numbers, k.n_numbers, numbers),
		counted("integers", k.integers, k.n_integers, kernelIntegers)); err != nil {
		return err
	}
	c.Compute, c.Bad, c.Integers = dtype.DType(k.compute), ptr(k.bad), integers(k.integers, k.n_integers)
	// Room for all values, which pointers stay good to.
	c.values = slices.Grow(c.values[:0], int(k.n_outs)+int(k.n_ins)+int(k.n_numbers))
	var err error
	if c.Outs, err = c.operands(c.Outs[:0], slice(k.outs, k.n_outs), o); err != nil {
		return err
	}
	if c.Ins, err = c.operands(c.Ins[:0], slice(k.ins, k.n_ins), o); err != nil {
		return err
	}
	c.Numbers = c.Numbers[:0]
	list := slice(k.numbers, k.n_numbers)
	for i := range list {
		c.Numbers = append(c.Numbers, c.number(&list[i]))
	}
	return nil
}

// operands are C's.
func (c *kernelCall) operands(to []kernel.Operand, from []C.chorus_operand, of *kernels.Operation) (
	[]kernel.Operand, error) {
	for i := range from {
		o := &from[i]
		if err := counted("dimensions", o.sizes, o.dims, kernelDims); err != nil {
			return to, err
		}
		if err := counted("strides", o.strides, o.dims, kernelDims); err != nil {
			return to, err
		}
		x := kernel.Operand{Ptr: ptr(o.memory), Type: dtype.DType(o.dtype), Sizes: integers(o.sizes, o.dims),
			Strides: integers(o.strides, o.dims)}
		switch {
		case o.number != nil && of.Lists:
			return to, refused("a number among lists of tensors")
		case o.number != nil:
			x.Value = c.number(o.number)
		}
		to = append(to, x)
	}
	return to, nil
}

// number is C's.
func (c *kernelCall) number(n *C.chorus_number) *kernel.Number {
	c.values = append(c.values, kernel.Number{Float: float64(n.real), Imag: float64(n.imag), Int: int64(n.integer),
		IsInt: n.is_integer != 0})
	return &c.values[len(c.values)-1]
}

// integers are C's, which stay where they are during the call.
func integers(p *C.int64_t, n C.int32_t) []int {
	if unsafe.Sizeof(int(0)) != 8 {
		panic("capi: int has less than 64 bits")
	}
	return slice((*int)(unsafe.Pointer(p)), n)
}
