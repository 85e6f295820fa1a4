//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kernel"
)

// loaders has the loader of each device that has run a kernel.
var loaders struct {
	sync.Mutex
	of map[*device.Device]*kernel.Loader
}

// loaderOf is the device's loader, with the cache on disk that the configuration names.
func loaderOf(d *device.Device) (*kernel.Loader, error) {
	loaders.Lock()
	defer loaders.Unlock()
	if l := loaders.of[d]; l != nil {
		return l, nil
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, refused("%v", err)
	}
	l, err := kernel.NewLoader(d, kernel.OpenDisk(cfg))
	if err != nil {
		return nil, err
	}
	if cfg.KernelAhead {
		l.CompileAhead()
	}
	if cfg.KernelProgress && sys.IsTerminal(2) {
		kernel.Compiling.Show(os.Stderr)
	}
	if loaders.of == nil {
		loaders.of = map[*device.Device]*kernel.Loader{}
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
func (s *stream) loader() (*kernel.Loader, error) {
	if l := s.kernels.Load(); l != nil {
		return l, nil
	}
	l, err := loaderOf(s.Device())
	if err == nil {
		s.kernels.Store(l)
	}
	return l, err
}

// kernelNames are the operations of each kind of kernel by name: chorus_kernel.op is a place here, plus 1.
var kernelNames = sync.OnceValue(func() map[C.int32_t][]string {
	names := map[C.int32_t][]string{
		C.CHORUS_KERNEL_SCAN:     kernel.Scans(),
		C.CHORUS_KERNEL_SOFTMAX:  {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"},
		C.CHORUS_KERNEL_NORM:     {"layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward"},
		C.CHORUS_KERNEL_TRIANGLE: {"tril", "triu"},
		C.CHORUS_KERNEL_RANGE:    {"arange", "linspace", "eye"},
		C.CHORUS_KERNEL_INDEX:    {"take", "put", "add", "mul", "amax", "amin"},
		C.CHORUS_KERNEL_SORT:     {"sort", "kthvalue", "median", "nanmedian", "mode"},
		C.CHORUS_KERNEL_SEARCH:   {"searchsorted", "isin"},
		C.CHORUS_KERNEL_COUNT:    {"bincount", "histc"},
		C.CHORUS_KERNEL_CHOOSE:   {"nonzero", "masked_select", "masked_scatter", "starts", "inverse", "lengths"},
		C.CHORUS_KERNEL_ROLL:     {"roll"},
		C.CHORUS_KERNEL_OPTIMIZE: {"sgd", "adam", "adamw", "adagrad"},

		C.CHORUS_KERNEL_RANDOM: {"dropout", "shuffle"},

		C.CHORUS_KERNEL_UNSCALE:      {"unscale"},
		C.CHORUS_KERNEL_UPDATE_SCALE: {"update_scale"},
	}
	for _, o := range kernel.Ops() {
		names[C.CHORUS_KERNEL_ELEMENTWISE] = append(names[C.CHORUS_KERNEL_ELEMENTWISE], o.Name)
	}
	maps.Copy(names, networkNames)
	names[C.CHORUS_KERNEL_MATMUL] = names[C.CHORUS_KERNEL_ELEMENTWISE] // the activations
	for _, r := range kernel.Reductions() {
		names[C.CHORUS_KERNEL_REDUCE] = append(names[C.CHORUS_KERNEL_REDUCE], r.Name)
	}
	names[C.CHORUS_KERNEL_FOREACH] = names[C.CHORUS_KERNEL_ELEMENTWISE]
	names[C.CHORUS_KERNEL_FOREACH_REDUCE] = names[C.CHORUS_KERNEL_REDUCE]
	return names
})

//export goKernelFind
func goKernelFind(kind C.int32_t, name *C.char, op *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || op == nil {
		return fail(refused("chorus_kernel_find got NULL"))
	}
	*op = 0
	wanted := C.GoString(name)
	if kind == C.CHORUS_KERNEL_ELEMENTWISE && kernel.IsUser(wanted) {
		n, err := userKernel(wanted)
		*op = n
		return fail(err)
	}
	for k, n := range kernelNames()[kind] {
		if n == wanted {
			*op = C.int32_t(k + 1)
			return C.CHORUS_OK
		}
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
	if l.LibraryVaries() {
		info.varies = 1
	}
	return C.CHORUS_OK
}

// userKernels are users' texts that were found: their numbers are places here, plus firstUserKernel.
var userKernels struct {
	sync.RWMutex
	texts  []string
	number map[string]C.int32_t
}

const firstUserKernel = 1 << 20

// userKernel is the number of a user's text, which stays known.
func userKernel(text string) (C.int32_t, error) {
	if err := kernel.CheckUser(text); err != nil {
		return 0, refused("%v", err)
	}
	u := &userKernels
	u.Lock()
	defer u.Unlock()
	n, ok := u.number[text]
	if !ok {
		if u.number == nil {
			u.number = map[string]C.int32_t{}
		}
		n = firstUserKernel + C.int32_t(len(u.texts))
		u.texts, u.number[text] = append(u.texts, text), n
	}
	return n, nil
}

// kernelName is the operation of a number of chorus_kernel_find; false if there's none.
func kernelName(kind, op C.int32_t) (string, bool) {
	if kind == C.CHORUS_KERNEL_ELEMENTWISE && op >= firstUserKernel {
		u := &userKernels
		u.RLock()
		defer u.RUnlock()
		if op -= firstUserKernel; int(op) < len(u.texts) {
			return u.texts[op], true
		}
		return "", false
	}
	names := kernelNames()[kind]
	if op < 1 || int(op) > len(names) {
		return "", false
	}
	return names[op-1], true
}

// noKernel is an error of package kernel as one that has enqueued nothing, so that the caller does without.
func noKernel(err error) error { return fmt.Errorf("chorus: %w: %w", errors.ErrUnsupported, err) }

// Most of what a kernel takes.
const (
	kernelOuts     = 8
	kernelIns      = 8
	kernelNumbers  = 16
	kernelIntegers = 64
	kernelDims     = 64 // of an operand
)

// kernelCall is a chorus_kernel as package kernel takes it. It's used again.
type kernelCall struct {
	plan     kernel.Plan
	operands [kernelOuts + kernelIns]kernel.Operand
	values   [kernelOuts + kernelIns + kernelNumbers]kernel.Number
	numbers  [kernelNumbers]*kernel.Number
	integers [kernelIntegers]int
	indexes  [kernelIns]kernel.Index
	network  networkForm
	lists    kernelLists

	stream *device.Stream
	memory []device.Ptr // scratch
}

var kernelCalls = sync.Pool{New: func() any {
	c := &kernelCall{}
	c.plan.Scratch = func(bytes int) (device.Ptr, error) {
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
	c.stream, c.plan.Cores, c.plan.Products = s.Stream, l.Cores(), l.Products()
	err = c.run(l, k)
	for _, p := range c.memory {
		err = errors.Join(err, s.Device().Dealloc(p)) // which waits for the stream's work
	}
	c.plan.Reset()
	clear(c.operands[:])
	c.stream, c.memory = nil, c.memory[:0]
	kernelCalls.Put(c)
	return fail(err)
}

func (c *kernelCall) run(l *kernel.Loader, k *C.chorus_kernel) error {
	switch k.kind {
	case C.CHORUS_KERNEL_FOREACH, C.CHORUS_KERNEL_FOREACH_REDUCE, C.CHORUS_KERNEL_OPTIMIZE, C.CHORUS_KERNEL_UNSCALE:
		return c.runLists(l, k)
	}
	outs, err := c.fill(0, k.outs, k.n_outs, kernelOuts)
	if err != nil {
		return err
	}
	ins, err := c.fill(kernelOuts, k.ins, k.n_ins, kernelIns)
	if err != nil {
		return err
	}
	if err := errors.Join(counted("numbers", k.numbers, k.n_numbers, kernelNumbers),
		counted("integers", k.integers, k.n_integers, kernelIntegers)); err != nil {
		return err
	}
	for i := range slice(k.numbers, k.n_numbers) {
		n := &c.values[kernelOuts+kernelIns+i]
		*n = number(&slice(k.numbers, k.n_numbers)[i])
		c.numbers[i] = n
	}
	for i, v := range slice(k.integers, k.n_integers) {
		c.integers[i] = int(v)
	}
	var op string
	if k.op != 0 || k.kind != C.CHORUS_KERNEL_MATMUL {
		var ok bool
		if op, ok = kernelName(C.int32_t(k.kind), C.int32_t(k.op)); !ok {
			return refused("a kernel of kind %d and operation %d", int(k.kind), int(k.op))
		}
	}
	c.plan.Fused, c.plan.Sparse = 0, 0
	if k.kind == C.CHORUS_KERNEL_SPARSE_MATMUL && k.n_integers == 1 && c.integers[0] > 0 {
		c.plan.Sparse = l.Sparse() // which opens a library
	}
	if integers := len(ins) > 0 && ins[0].Type == dtype.Int8; k.kind == C.CHORUS_KERNEL_SCALED_MATMUL ||
		k.kind == C.CHORUS_KERNEL_MATMUL && integers {
		c.plan.Fused = l.Fused() // which opens a library
	}
	return c.enqueue(l, c.add(int(k.kind), op, dtype.DType(k.compute), outs, ins, c.numbers[:k.n_numbers],
		c.integers[:k.n_integers], ptr(k.bad)))
}

// enqueue runs the plan, unless adding to it has had an error.
func (c *kernelCall) enqueue(l *kernel.Loader, err error) error {
	if err != nil {
		if errors.Is(err, device.ErrOutOfMemory) || errors.Is(err, errKernelArgs) { // of scratch memory
			return err
		}
		return noKernel(err)
	}
	err = l.Run(c.stream, &c.plan)
	if _, is := errors.AsType[*kernel.CompileError](err); is {
		return noKernel(err)
	}
	return err
}

// fill makes operands of C's, from place at on.
func (c *kernelCall) fill(at int, from *C.chorus_operand, n C.int32_t, most int) ([]kernel.Operand, error) {
	if err := counted("operands", from, n, most); err != nil {
		return nil, err
	}
	list := slice(from, n)
	for i := range list {
		o, to := &list[i], &c.operands[at+i]
		var err error
		if *to, err = operandOf(o); err != nil {
			return nil, err
		}
		if o.number != nil {
			c.values[at+i] = number(o.number)
			to.Value = &c.values[at+i]
		}
	}
	return c.operands[at : at+len(list)], nil
}

// operandOf is C's operand, but for a number.
func operandOf(o *C.chorus_operand) (kernel.Operand, error) {
	if err := counted("dimensions", o.sizes, o.dims, kernelDims); err != nil {
		return kernel.Operand{}, err
	}
	if err := counted("strides", o.strides, o.dims, kernelDims); err != nil {
		return kernel.Operand{}, err
	}
	return kernel.Operand{Ptr: ptr(o.memory), Type: dtype.DType(o.dtype), Sizes: integers(o.sizes, o.dims),
		Strides: integers(o.strides, o.dims)}, nil
}

// integers are C's, which stay where they are during the call.
func integers(p *C.int64_t, n C.int32_t) []int {
	if unsafe.Sizeof(int(0)) != 8 {
		panic("capi: int has less than 64 bits")
	}
	return slice((*int)(unsafe.Pointer(p)), n)
}

func number(n *C.chorus_number) kernel.Number {
	return kernel.Number{Float: float64(n.real), Imag: float64(n.imag), Int: int64(n.integer), IsInt: n.is_integer != 0}
}

// randomAt is where random numbers begin: the last input is a state in memory, or none, and the last integers are a
// seed and an offset.
func randomAt(ins []kernel.Operand, integers []int) kernel.Random {
	n := len(integers)
	return kernel.Random{Seed: uint64(integers[n-2]), Offset: uint64(integers[n-1]), State: ins[len(ins)-1].Ptr}
}

// errKernelArgs is what refused gives here: a call with other numbers of arguments than its kind has.
var errKernelArgs = refused("")

// add adds the operation to the plan. It holds no lock, so that a panic of it is an error.
func (c *kernelCall) add(kind int, op string, compute dtype.DType, outs, ins []kernel.Operand,
	numbers []*kernel.Number, integers []int, bad device.Ptr) (err error) {
	defer kernel.Contain("the plan of a kernel", &err)
	p := &c.plan
	wants := func(nOuts, nIns, nNumbers, nIntegers int) error {
		return wantsKernel(op, outs, ins, numbers, integers, nOuts, nIns, nNumbers, nIntegers)
	}
	switch kind {
	case C.CHORUS_KERNEL_ELEMENTWISE:
		return p.Elementwise(op, compute, outs, ins, numbers...)
	case C.CHORUS_KERNEL_REDUCE:
		if len(ins) != 1 {
			return wants(len(outs), 1, len(numbers), len(integers))
		}
		if len(integers) == 0 {
			integers = nil // all dimensions
		}
		return p.Reduce(op, compute, outs, ins[0], integers, numbers...)
	case C.CHORUS_KERNEL_SCAN:
		if err := wants(len(outs), 1, 0, 1); err != nil {
			return err
		}
		return p.Scan(op, compute, outs, ins[0], integers[0])
	case C.CHORUS_KERNEL_SOFTMAX:
		if op == "softmax" || op == "log_softmax" {
			if err := wants(1, 1, 0, 1); err != nil {
				return err
			}
			return p.Softmax(op, outs[0], ins[0], integers[0])
		}
		if err := wants(1, 2, 0, 1); err != nil {
			return err
		}
		return p.SoftmaxBackward(op[:len(op)-len("_backward")], outs[0], ins[0], ins[1], integers[0])
	case C.CHORUS_KERNEL_NORM:
		grouped := 0
		if len(integers) > 0 {
			grouped = 3
		}
		if op == "layer_norm" || op == "rms_norm" {
			if err := wants(3, 3, 1, grouped); err != nil {
				return err
			}
			n := kernel.Norm{Mean: outs[1], Rstd: outs[2], Weight: ins[1], Bias: ins[2]}
			group(&n, integers)
			return p.Normalize(op, outs[0], ins[0], &n, numbers[0].Float)
		}
		if err := wants(3, 5, 0, grouped); err != nil {
			return err
		}
		op = op[:len(op)-len("_backward")]
		n := kernel.Norm{Mean: ins[2], Rstd: ins[3], Weight: ins[4]}
		group(&n, integers)
		if outs[0].Type != dtype.Invalid {
			if err := p.NormalizeBackward(op, outs[0], ins[0], ins[1], &n); err != nil {
				return err
			}
		}
		if outs[1].Type == dtype.Invalid && outs[2].Type == dtype.Invalid {
			return nil
		}
		return p.NormalizeWeights(op, outs[1], outs[2], ins[0], ins[1], &n)
	case C.CHORUS_KERNEL_MATMUL:
		if err := wants(1, 3, 2, min(len(integers), 1)); err != nil {
			return err
		}
		p.Atomics = len(integers) == 1 && integers[0] != 0
		return p.Matmul(outs[0], ins[0], ins[1], ins[2], numbers[0], numbers[1], op)
	case C.CHORUS_KERNEL_TRIANGLE:
		if err := wants(1, 1, 0, 1); err != nil {
			return err
		}
		return p.Triangle(outs[0], ins[0], op == "triu", integers[0])
	case C.CHORUS_KERNEL_RANGE:
		switch op {
		case "eye":
			if err := wants(1, 0, 0, 0); err != nil {
				return err
			}
			return p.Eye(outs[0])
		case "linspace":
			if err := wants(1, 0, 2, 0); err != nil {
				return err
			}
			return p.Linspace(outs[0], compute, numbers[0].Float, numbers[1].Float)
		}
		if err := wants(1, 0, 2, 0); err != nil {
			return err
		}
		return p.Arange(outs[0], compute, numbers[0], numbers[1])
	case C.CHORUS_KERNEL_INDEX:
		if len(ins) < 2 {
			return wants(1, 2, 0, 3)
		}
		n := len(ins) - 1
		if err := wants(1, n+1, 0, 3*n); err != nil {
			return err
		}
		for i := range n {
			c.indexes[i] = kernel.Index{Operand: ins[1+i], Size: integers[3*i], Stride: integers[3*i+1],
				NoNegative: integers[3*i+2] == 0}
		}
		if op == "take" {
			return p.Take(outs[0], ins[0], bad, c.indexes[:n]...)
		}
		return p.Put(op, outs[0], ins[0], bad, c.indexes[:n]...)
	case C.CHORUS_KERNEL_SORT, C.CHORUS_KERNEL_SEARCH, C.CHORUS_KERNEL_COUNT, C.CHORUS_KERNEL_CHOOSE, C.CHORUS_KERNEL_ROLL,
		C.CHORUS_KERNEL_UPDATE_SCALE:
		return c.ordered(op, outs, ins, numbers, integers, bad)
	case C.CHORUS_KERNEL_RANDOM:
		if op == "shuffle" {
			if err := wants(1, 2, 0, 2); err != nil {
				return err
			}
			return p.Shuffle(outs[0], ins[0], randomAt(ins, integers))
		}
		if err := wants(2, 2, 1, 2); err != nil {
			return err
		}
		return p.Dropout(outs[0], outs[1], ins[0], randomAt(ins, integers), numbers[0].Float)
	}
	return c.addNetwork(kind, op, outs, ins, numbers, integers, bad)
}
