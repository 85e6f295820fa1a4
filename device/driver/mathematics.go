package driver

import "github.com/chorus-comms/chorus/dtype"

// Mathematics is implemented by drivers that compute by libraries of the device's maker, or by ones for its kind of
// device.
type Mathematics interface {
	// MathFields are those of which devices may have a library, which isn't looked for.
	MathFields() []Field

	// MathLibrary tells which library a device has for a field. It's opened at the first call. The error says why there's
	// none, then and each time: [ErrUnsupported].
	MathLibrary(dev int, of Field) (Library, error)

	// MathWork is how much memory of the device a task needs beside its own. Errors are Compute's.
	MathWork(s StreamHandle, t Task) (bytes int, err error)

	// Compute enqueues a task on a stream. It gets as much memory for work as MathWork says.
	//
	// The error is [ErrUnsupported] if the library doesn't do this one. It's [ErrCapture] if its work can't be captured,
	// as the stream's is. Then what it writes is as it was, and that of a Solve has no particular contents.
	Compute(s StreamHandle, t Task, work Ptr) error
}

// Field is what a library is for.
type Field int

const (
	GEMMs         Field = iota // tasks are GEMMs
	FusedGEMMs                 // FusedGEMMs, with numbers of 8 bits
	SpMMs                      // SpMMs
	FFTs                       // FFTs
	LinearAlgebra              // Solves
)

var fieldNames = [...]string{"products", "fused products", "sparse matrices", "transforms", "linear algebra"}

func (f Field) String() string { return fieldNames[f] }

// Task is a [*GEMM], [*FusedGEMM], [*SpMM], [*FFT] or [*Solve].
type Task interface{ Field() Field }

// Field implements [Task].
func (*GEMM) Field() Field { return GEMMs }

// Field implements [Task].
func (*FusedGEMM) Field() Field { return FusedGEMMs }

// Field implements [Task].
func (*SpMM) Field() Field { return SpMMs }

// Field implements [Task].
func (*FFT) Field() Field { return FFTs }

// Field implements [Task].
func (*Solve) Field() Field { return LinearAlgebra }

// Library describes a library of a field.
type Library struct {
	Name  string        // with its version and file
	Types []dtype.DType // of elements; not of FFTs
	// Varies says that products may have other bits each time: cuBLAS's, unless CUBLAS_WORKSPACE_CONFIG is :4096:8 or
	// :16:8.
	Varies bool

	// Of FFTs:
	Dims   int  // of a transform, at most
	Align  int  // bytes: what addresses of in and out are a multiple of
	Spoils bool // transforms of real numbers may change what they read, as those to real numbers may anyway
}

// BLASHandles is implemented by drivers whose library of products has a handle for each stream.
type BLASHandles interface {
	// BLASHandle is that of a stream: a cublasHandle_t or hipblasHandle_t. [ErrUnsupported] says that there's no
	// library.
	BLASHandle(s StreamHandle) (uintptr, error)
}

// PlanCaches is implemented by drivers that keep what a library has prepared for transforms.
type PlanCaches interface {
	// FFTPlans are the plans that are kept for a device, whether or not there's a library.
	FFTPlans(dev int) (PlanCache, error)
}

// PlanCache has what a library has prepared for transforms: those that were used last.
type PlanCache interface {
	Len() int
	Most() int           // that are kept
	SetMost(n int) error // 0: none is kept
	Clear()
}
