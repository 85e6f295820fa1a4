package device

import "github.com/chorus-comms/chorus/device/driver"

// The vocabulary that programs and drivers share is declared in package driver; these are its names here.
type (
	Args               = driver.Args
	Ptr                = driver.Ptr
	Properties         = driver.Properties
	Driver             = driver.Driver
	StreamHandle       = driver.StreamHandle
	EventHandle        = driver.EventHandle
	Kind               = driver.Kind
	Error              = driver.Error
	WorkError          = driver.WorkError
	FusedGEMM          = driver.FusedGEMM
	Modules            = driver.Modules
	Elements           = driver.Elements
	Dim                = driver.Dim
	Launch             = driver.Launch
	FunctionAttributes = driver.FunctionAttributes
	HostKernels        = driver.HostKernels
	Span               = driver.Span
	Graphs             = driver.Graphs
	Node               = driver.Node
	IPC                = driver.IPC
	ActivityKind       = driver.ActivityKind
	Activity           = driver.Activity
	Library            = driver.Library
	GEMM               = driver.GEMM
	Matrix             = driver.Matrix
	SolveKind          = driver.SolveKind
	MatrixOp           = driver.MatrixOp
	Solve              = driver.Solve
	ColumnMatrix       = driver.ColumnMatrix
	Series             = driver.Series
	SpMM               = driver.SpMM
	FFTKind            = driver.FFTKind
	FFT                = driver.FFT
	FFTDim             = driver.FFTDim
)

// The kinds of error, for errors.Is.
const (
	ErrInvalidPointer  = driver.ErrInvalidPointer
	ErrOutOfBounds     = driver.ErrOutOfBounds
	ErrWrongKind       = driver.ErrWrongKind
	ErrWrongDevice     = driver.ErrWrongDevice
	ErrHostAccess      = driver.ErrHostAccess
	ErrInvalidHandle   = driver.ErrInvalidHandle
	ErrCapture         = driver.ErrCapture
	ErrInvalidArgument = driver.ErrInvalidArgument
	ErrNotFound        = driver.ErrNotFound
	ErrOutOfMemory     = driver.ErrOutOfMemory
	ErrUnsupported     = driver.ErrUnsupported
	ErrTimeout         = driver.ErrTimeout
	ErrCanceled        = driver.ErrCanceled
	ErrNotReady        = driver.ErrNotReady
	ErrFailed          = driver.ErrFailed
	ErrLoad            = driver.ErrLoad
	ErrNoDevice        = driver.ErrNoDevice
	ErrInternal        = driver.ErrInternal
)

// These are the kinds of memory, activities, steps and transforms.
const (
	DeviceMemory    = driver.DeviceMemory
	NotCapturing    = driver.NotCapturing
	ActivityKernel  = driver.ActivityKernel
	ActivityCopy    = driver.ActivityCopy
	ActivityFill    = driver.ActivityFill
	ActivityHost    = driver.ActivityHost
	ActivityWait    = driver.ActivityWait
	ActivityRecord  = driver.ActivityRecord
	ActivityGraph   = driver.ActivityGraph
	ActivityRuntime = driver.ActivityRuntime
	Cholesky        = driver.Cholesky
	LU              = driver.LU
	QR              = driver.QR
)

// Errorf returns an *Error; see [driver.Errorf].
func Errorf(kind Kind, device, op, format string, args ...any) *Error {
	return driver.Errorf(kind, device, op, format, args...)
}
