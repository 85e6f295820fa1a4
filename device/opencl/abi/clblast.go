package abi

// CLBlast's numbers of layouts and transpositions, and its results beyond OpenCL's.
const (
	RowMajor     int32 = 101
	Straight     int32 = 111
	TransposedBy int32 = 112
)

// Complex32 and Complex64 are cl_float2 and cl_double2, complex numbers that functions take by value.
type (
	Complex32 struct{ Re, Im float32 }
	Complex64 struct{ Re, Im float64 }
)

// Signatures of CLBlast's products of matrices: sizes, leading dimensions, offsets and strides are in elements. made
// may be nil.
type (
	Multiplying[T any] = func(layout, transA, transB int32, m, n, k uintptr, alpha T, a Mem, aAt, aPitch uintptr,
		b Mem, bAt, bPitch uintptr, beta T, c Mem, cAt, cPitch uintptr, q *Queue, made *Event) Result
	MultiplyingMany[T any] = func(layout, transA, transB int32, m, n, k uintptr, alpha T, a Mem, aAt, aPitch,
		aNext uintptr, b Mem, bAt, bPitch, bNext uintptr, beta T, c Mem, cAt, cPitch, cNext, count uintptr, q *Queue,
		made *Event) Result
)

// CLBlast is the functions of CLBlast that are used. It calls OpenCL by the loader that the dynamic linker finds,
// which any driver's objects lead to the driver. The tags are those of package internal/dl.
type CLBlast struct {
	S Multiplying[float32]   `dl:"CLBlastSgemm"`
	D Multiplying[float64]   `dl:"CLBlastDgemm"`
	C Multiplying[Complex32] `dl:"CLBlastCgemm"`
	Z Multiplying[Complex64] `dl:"CLBlastZgemm"`

	SMany MultiplyingMany[float32]   `dl:"CLBlastSgemmStridedBatched" cap:"batches" since:"1.4"`
	DMany MultiplyingMany[float64]   `dl:"CLBlastDgemmStridedBatched" cap:"batches"`
	CMany MultiplyingMany[Complex32] `dl:"CLBlastCgemmStridedBatched" cap:"batches"`
	ZMany MultiplyingMany[Complex64] `dl:"CLBlastZgemmStridedBatched" cap:"batches"`

	ClearCache func() Result `dl:"CLBlastClearCache"`
}

// CLBlastNames are what the dynamic linker looks for.
var CLBlastNames = []string{"libclblast.so.1", "libclblast.so", "libclblast.1.dylib"}

// blastNames are CLBlast's for results that are none of OpenCL's.
var blastNames = map[Result]string{
	-1024: "NotImplemented", -1022: "InvalidMatrixA", -1021: "InvalidMatrixB", -1020: "InvalidMatrixC",
	-1017: "InvalidDimension", -1016: "InvalidLeadDimA", -1015: "InvalidLeadDimB", -1014: "InvalidLeadDimC",
	-1011: "InsufficientMemoryA", -1010: "InsufficientMemoryB", -1009: "InsufficientMemoryC",
	-2050: "InsufficientMemoryTemp", -2049: "InvalidBatchCount", -2048: "InvalidOverrideKernel",
	-2047: "MissingOverrideParameter", -2046: "InvalidLocalMemUsage", -2045: "NoHalfPrecision",
	-2044: "NoDoublePrecision", -2041: "DatabaseError", -2040: "UnknownError", -2039: "UnexpectedError",
}

// BlastName is CLBlast's name of a result; empty if it has none.
func (r Result) BlastName() string {
	if s, ok := blastNames[r]; ok {
		return "CLBlast" + s
	}
	return r.Name()
}
