package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// BLASHandle is cublasHandle_t and hipblasHandle_t.
type BLASHandle uintptr

// Status is cublasStatus_t and hipblasStatus_t, which agree in success alone.
type Status int32

// Done is the status of a call that has succeeded.
const Done Status = 0

func (s Status) String() string { return fmt.Sprintf("status %d", int32(s)) }

// Numbers of element types that cuBLAS and hipBLAS from 2.0 on agree in: cudaDataType and hipDataType.
const (
	Real32    int32 = 0
	Real64    int32 = 1
	Real16    int32 = 2
	Complex32 int32 = 4
	Complex64 int32 = 5
	RealB16   int32 = 14
)

// BLASNumbers are the numbers in which the two libraries don't agree.
type BLASNumbers struct {
	Straight, Transposed, Conjugated int32 // operations on a matrix
	Left, Right                      int32 // sides of it
	Lower, Upper                     int32 // triangles
	General, Unit                    int32 // diagonals
	In32, In64                       int32 // what is computed in
	Default                          int32 // algorithm

	AllocFailed, InvalidValue, ArchMismatch, NotSupported Status
}

// Numbers are a family's.
func (f *Family) Numbers() BLASNumbers {
	if f.Name == "hip" {
		return BLASNumbers{Straight: 111, Transposed: 112, Conjugated: 113, Left: 141, Right: 142, Lower: 122, Upper: 121,
			General: 131, Unit: 132, In32: 2, In64: 7, Default: 160, AllocFailed: 2, InvalidValue: 3, ArchMismatch: 8,
			NotSupported: 7}
	}
	return BLASNumbers{Straight: 0, Transposed: 1, Conjugated: 2, Left: 0, Right: 1, Lower: 0, Upper: 1, General: 0,
		Unit: 1, In32: 68, In64: 70, Default: -1, AllocFailed: 3, InvalidValue: 7,
		ArchMismatch: 8, NotSupported: 15}
}

// Signatures of products of matrices, whose columns are dense. alpha and beta point to numbers of the host.
type (
	Multiplying = func(h BLASHandle, transA, transB, m, n, k int32, alpha *byte, a uintptr, typeA, pitchA int32,
		b uintptr, typeB, pitchB int32, beta *byte, c uintptr, typeC, pitchC, compute, algorithm int32) Status
	MultiplyingMany = func(h BLASHandle, transA, transB, m, n, k int32, alpha *byte, a uintptr, typeA, pitchA int32,
		nextA int64, b uintptr, typeB, pitchB int32, nextB int64, beta *byte, c uintptr, typeC, pitchC int32, nextC int64,
		count, compute, algorithm int32) Status
	SolvingTriangular = func(h BLASHandle, side, uplo, op, diagonal, m, n int32, alpha *byte, a uintptr, pitchA int32,
		b uintptr, pitchB int32) Status
)

// BLAS is the functions of cuBLAS from 11.0 on, and of hipBLAS from 2.0 on: until 3.0 those whose names end in _v2 have
// these types. The tags are those of package internal/dl.
type BLAS struct {
	Create     func(h *BLASHandle) Status                         `dl:"cublasCreate_v2|hipblasCreate"`
	Destroy    func(h BLASHandle) Status                          `dl:"cublasDestroy_v2|hipblasDestroy"`
	SetStream  func(h BLASHandle, s Stream) Status                `dl:"cublasSetStream_v2|hipblasSetStream"`
	SetAtomics func(h BLASHandle, mode int32) Status              `dl:"cublasSetAtomicsMode|hipblasSetAtomicsMode"`
	Multiply   Multiplying                                        `dl:"cublasGemmEx|hipblasGemmEx_v2|hipblasGemmEx"`
	Many       MultiplyingMany                                    `dl:"cublasGemmStridedBatchedEx|hipblasGemmStridedBatchedEx_v2|hipblasGemmStridedBatchedEx"`
	Workspace  func(h BLASHandle, p uintptr, bytes uint64) Status `dl:"cublasSetWorkspace_v2|hipblasSetWorkspace" cap:"workspaces" since:"11.0"`
	Text       func(s Status) string                              `dl:"cublasGetStatusString|hipblasStatusToString" cap:"texts" since:"11.4"`
	TrsmS      SolvingTriangular                                  `dl:"cublasStrsm_v2|hipblasStrsm" cap:"triangular systems"`
	TrsmD      SolvingTriangular                                  `dl:"cublasDtrsm_v2|hipblasDtrsm" cap:"triangular systems"`
	TrsmC      SolvingTriangular                                  `dl:"cublasCtrsm_v2|hipblasCtrsm" cap:"triangular systems"`
	TrsmZ      SolvingTriangular                                  `dl:"cublasZtrsm_v2|hipblasZtrsm" cap:"triangular systems"`
	Version    func(h BLASHandle, v *int32) Status                `dl:"cublasGetVersion_v2" cap:"versions"`
}

// BLASSymbols is [Symbols] of that table.
func BLASSymbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[BLAS]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// BLASCandidates are where the family's library of products may be, as [Family.CompilerCandidates]: one for the
// driver's release first.
func (f *Family) BLASCandidates(major int) []string {
	if f.Name == "hip" {
		major -= 4 // hipBLAS 3 came with ROCm 7
	}
	return ofRelease(candidates(f.BLASes, f.BLASWheels), major)
}
