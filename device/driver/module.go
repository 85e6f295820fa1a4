package driver

import (
	"fmt"
	"math"
)

// Modules is implemented by drivers that run compiled kernels: functions of an image that the vendor's tools made, or a
// compiler at run time.
type Modules interface {
	// ModuleLoad makes the functions of an image ready on a device. The driver defines the kinds of image: a program of
	// the device, an intermediate form, or a source. One that it can't load is ErrInvalidArgument, with the message of
	// its compiler or loader.
	ModuleLoad(dev int, image []byte) (ModuleHandle, error)

	// ModuleUnload makes the handles of the module and of its functions invalid. Launched work still runs, and graphs
	// keep the functions that they captured.
	ModuleUnload(m ModuleHandle) error

	// ModuleFunction looks a function up. ErrNotFound says which ones there are, if the driver knows.
	ModuleFunction(m ModuleHandle, name string) (FunctionHandle, error)

	// FunctionAttributes describes a function.
	FunctionAttributes(f FunctionHandle) (FunctionAttributes, error)

	// FunctionLaunch enqueues a run of a function on a stream of its module's device. Arguments are copied. Their
	// number, and where the driver knows them their types, must be the function's. Pointers among them must point to
	// memory that kernels of the device may touch, as for [HostKernels].Launch. A kernel must not touch memory beyond
	// the end of an allocation; a noticed access is a failure of work.
	FunctionLaunch(s StreamHandle, f FunctionHandle, l Launch) error
}

// Elements is implemented by drivers with [Modules] and without [HostKernels]: it's how package tensor copies, converts
// and fills elements that don't lie one after the other.
type Elements interface {
	// ElementsImage is the image of a module with a function for blocks of threads in one dimension:
	//
	//	copy_elements(void *dst, const void *src, int64_t n, struct {
	//		int32_t to, from;        // their types, numbers of package dtype
	//		int64_t sizes[8];        // of the dimensions, n elements together; those that aren't there are first, and 1
	//		int64_t dst[8], src[8];  // from one element to the next in each dimension, in bytes
	//	} layout)
	//
	// It copies n elements, fewer than 2^31, as tensor.Tensor.CopyFrom converts them. The two sides don't overlap; src
	// may be pinned memory.
	ElementsImage(dev int) ([]byte, error)
}

// Dim is a number of blocks or threads in three dimensions. In a [Launch] 0 stands for 1.
type Dim struct{ X, Y, Z int }

// Count is the product.
func (d Dim) Count() int { return d.X * d.Y * d.Z }

// OrOne returns d with 1 instead of 0.
func (d Dim) OrOne() Dim {
	one := func(n int) int {
		if n == 0 {
			return 1
		}
		return n
	}
	return Dim{one(d.X), one(d.Y), one(d.Z)}
}

func (d Dim) String() string { return fmt.Sprintf("%dx%dx%d", d.X, d.Y, d.Z) }

// Launch is one run of a compiled kernel.
type Launch struct {
	Grid   Dim // blocks
	Block  Dim // threads of a block
	Shared int // bytes of dynamic shared memory of a block
	Args   *Args

	// Elements says that the kernel ends whatever it's given, after some nanoseconds for each of so many elements; one
	// that takes longer counts several times. 0: unknown.
	// A wait for such work may last until its end, though its context has ended.
	Elements int
}

// LaunchLimit is how many blocks of so many threads a launch has at most in each dimension.
func (p *Properties) LaunchLimit(block Dim) Dim {
	limit := func(most, threads int) int {
		if most == 0 {
			most = math.MaxInt32
		}
		if p.MostThreads > 0 {
			most = min(most, p.MostThreads/max(threads, 1))
		}
		return most
	}
	return Dim{limit(p.MostBlocks.X, block.X), limit(p.MostBlocks.Y, block.Y), limit(p.MostBlocks.Z, block.Z)}
}

// SizeOf is how many bytes arguments are, of the ArgumentBytes that a launch can have.
func (p *Properties) SizeOf(a *Args) int {
	b, params := a.Packed()
	n := len(b)
	for k := range params {
		if p.Offsets && params[k].Kind == ParamPointer {
			n += 8
		}
	}
	return n
}

// FunctionAttributes describes a function of a module.
type FunctionAttributes struct {
	Name        string
	Params      []ParamKind // nil if the driver doesn't know them
	MaxThreads  int         // of a block
	SharedBytes int         // static shared memory of a block
	LocalBytes  int         // local memory of a thread
	Registers   int         // of a thread
}
