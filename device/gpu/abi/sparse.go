package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// SparseHandle is cusparseHandle_t and hipsparseHandle_t.
type SparseHandle uintptr

// SparseRows is cusparseSpMatDescr_t and hipsparseSpMatDescr_t, the description of a sparse matrix.
type SparseRows uintptr

// SparseDense is cusparseDnMatDescr_t and hipsparseDnMatDescr_t, the description of a dense one.
type SparseDense uintptr

// SparseStatus is cusparseStatus_t and hipsparseStatus_t.
type SparseStatus int32

// Statuses. The two libraries agree in all.
const (
	SparseDone         SparseStatus = 0
	SparseNoDevice     SparseStatus = 1 // it isn't initialized
	SparseAllocFailed  SparseStatus = 2
	SparseInvalidValue SparseStatus = 3
	SparseArchMismatch SparseStatus = 4
	SparseInternal     SparseStatus = 7
	SparseBadType      SparseStatus = 8
	SparseNotSupported SparseStatus = 10
	SparseNoResources  SparseStatus = 11
)

func (s SparseStatus) String() string { return fmt.Sprintf("status %d", int32(s)) }

// Other numbers that cuSPARSE and hipSPARSE agree in. Types of elements are those of products: [Real32] and others.
const (
	SparseStraight   int32 = 0 // operations on a matrix
	SparseTransposed int32 = 1

	SparseIndex32  int32 = 2 // types of indexes
	SparseIndex64  int32 = 3
	SparseFromZero int32 = 0

	SparseColumnOrder int32 = 1 // neighbours of a dense matrix that lie side by side
	SparseRowOrder    int32 = 2

	SparseByRows   int32 = 6  // algorithm 2 for rows, which PyTorch uses: its sums vary
	SparseSameBits int32 = 12 // algorithm 3 for rows: of cuSPARSE the sums are the same each time
)

// Signatures of functions. Alpha and beta point to numbers of the host, and all other addresses are the device's.
type (
	SparseDescribing = func(a *SparseRows, rows, columns, count int64, starts, places, values uintptr, starting, placing,
		base, typ int32) SparseStatus
	SparseLaying = func(m *SparseDense, rows, columns, pitch int64, values uintptr, typ, order int32) SparseStatus
	SparseSizing = func(h SparseHandle, opA, opB int32, alpha *byte, a SparseRows, b SparseDense, beta *byte,
		c SparseDense, compute, algorithm int32, work *uint64) SparseStatus
	SparseMultiplying = func(h SparseHandle, opA, opB int32, alpha *byte, a SparseRows, b SparseDense, beta *byte,
		c SparseDense, compute, algorithm int32, work uintptr) SparseStatus
)

// Sparse is the functions of cuSPARSE from 11 on, and of hipSPARSE from ROCm 4.5 on. The tags are those of package
// internal/dl.
type Sparse struct {
	Create       func(h *SparseHandle) SparseStatus          `dl:"cusparseCreate|hipsparseCreate"`
	Destroy      func(h SparseHandle) SparseStatus           `dl:"cusparseDestroy|hipsparseDestroy"`
	SetStream    func(h SparseHandle, s Stream) SparseStatus `dl:"cusparseSetStream|hipsparseSetStream"`
	NewRows      SparseDescribing                            `dl:"cusparseCreateCsr|hipsparseCreateCsr"`
	DropRows     func(a SparseRows) SparseStatus             `dl:"cusparseDestroySpMat|hipsparseDestroySpMat"`
	NewDense     SparseLaying                                `dl:"cusparseCreateDnMat|hipsparseCreateDnMat"`
	DropDense    func(m SparseDense) SparseStatus            `dl:"cusparseDestroyDnMat|hipsparseDestroyDnMat"`
	MultiplyWork SparseSizing                                `dl:"cusparseSpMM_bufferSize|hipsparseSpMM_bufferSize"`
	Multiply     SparseMultiplying                           `dl:"cusparseSpMM|hipsparseSpMM"`
	Text         func(s SparseStatus) string                 `dl:"cusparseGetErrorString|hipsparseGetErrorString" cap:"texts"`
	Version      func(h SparseHandle, v *int32) SparseStatus `dl:"cusparseGetVersion|hipsparseGetVersion"`
}

// SparseSymbols is [Symbols] of that table.
func SparseSymbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[Sparse]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// SparseCandidates are where the family's library of sparse matrices may be, as [Family.BLASCandidates].
func (f *Family) SparseCandidates(major int) []string {
	if f.Name == "cuda" {
		major = min(major, 12) // which CUDA 13 has, too
	} else if n, ok := map[int]int{5: 0, 6: 1, 7: 4}[major]; ok {
		major = n
	}
	return ofRelease(candidates(f.Sparses, f.SparseWheels), major)
}
