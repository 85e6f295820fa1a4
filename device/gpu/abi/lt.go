package abi

import (
	"reflect"
	"strings"
)

// Handles of cuBLASLt and hipBLASLt, and their descriptions: of a product (cublasLtMatmulDesc_t), of how a matrix lies,
// and of what is asked of an algorithm.
type (
	LtHandle     uintptr
	LtProduct    uintptr
	LtLayout     uintptr
	LtPreference uintptr
)

// Numbers of element types beside those of [BLAS], cudaDataType and hipDataType. The types that end in FNUZ are HIP's.
const (
	Int8           int32 = 3
	Int32          int32 = 10
	Float8E4M3     int32 = 28
	Float8E5M2     int32 = 29
	Float8E4M3FNUZ int32 = 1000
	Float8E5M2FNUZ int32 = 1001
)

// Other numbers that cuBLASLt and hipBLASLt agree in.
const (
	LtEpilogueBias  int32 = 4 // a number for each row is added
	LtEpilogueRelu  int32 = 6 // that, and then negative numbers become 0
	LtScaleOuter    int32 = 3 // a scale for each row of one matrix and column of the other, instead of 0, one for all
	LtMostWorkspace int32 = 1 // bytes: an attribute of an [LtPreference]
)

// LtNumbers are the numbers in which the two libraries don't agree.
type LtNumbers struct {
	In32I int32 // computed in integers

	// attributes of a product
	TransA, TransB, Epilogue, Bias, BiasType, ScaleA, ScaleB, ScaleOut, ScaleModeA, ScaleModeB int32

	// AlignA is an attribute of a preference, how matrix A is aligned, which those of the others follow; 0: there's none.
	AlignA int32

	Algorithm int // words of an algorithm, which an [LtResult] begins with
}

// LtNumbers are a family's.
func (f *Family) LtNumbers() LtNumbers {
	if f.Name == "hip" {
		return LtNumbers{In32I: 9, TransA: 0, TransB: 1, Epilogue: 2, Bias: 3, BiasType: 4, ScaleA: 5, ScaleB: 6,
			ScaleOut: 8, ScaleModeA: 31, ScaleModeB: 32, Algorithm: 3}
	}
	return LtNumbers{In32I: 72, TransA: 3, TransB: 4, Epilogue: 7, Bias: 8, BiasType: 26, ScaleA: 17, ScaleB: 18,
		ScaleOut: 20, ScaleModeA: 31, ScaleModeB: 32, AlignA: 5, Algorithm: 8}
}

// LtResult is cublasLtMatmulHeuristicResult_t, and hipblasLtMatmulHeuristicResult_t, which is shorter. It has an
// algorithm, the bytes of workspace that it needs, a status, and more.
type LtResult [12]uint64

// Workspace is how many bytes the algorithm needs.
func (r *LtResult) Workspace(n *LtNumbers) uint64 { return r[n.Algorithm] }

// Status says whether the rest is valid.
func (r *LtResult) Status(n *LtNumbers) Status { return Status(int32(r[n.Algorithm+1])) }

// Signatures of functions. Matrices have dense columns; alpha and beta point to numbers of the host.
type (
	LtDescribing = func(p *LtProduct, compute, scale int32) Status
	LtSetting    = func(p LtProduct, attribute int32, value *byte, bytes uint64) Status
	LtLaying     = func(l *LtLayout, typ int32, rows, columns uint64, pitch int64) Status
	LtPreferring = func(p LtPreference, attribute int32, value *byte, bytes uint64) Status
	LtChoosing   = func(h LtHandle, p LtProduct, a, b, c, out LtLayout, prefer LtPreference, most int32,
		results *LtResult, found *int32) Status
	LtMultiplying = func(h LtHandle, p LtProduct, alpha *byte, a uintptr, ofA LtLayout, b uintptr, ofB LtLayout,
		beta *byte, c uintptr, ofC LtLayout, out uintptr, ofOut LtLayout, algorithm *LtResult, workspace uintptr,
		bytes uint64, s Stream) Status
)

// Lt is the functions of cuBLASLt from 11.0 on, and of hipBLASLt from ROCm 6 on. The tags are those of package
// internal/dl.
type Lt struct {
	Create         func(h *LtHandle) Status     `dl:"cublasLtCreate|hipblasLtCreate"`
	Destroy        func(h LtHandle) Status      `dl:"cublasLtDestroy|hipblasLtDestroy"`
	NewProduct     LtDescribing                 `dl:"cublasLtMatmulDescCreate|hipblasLtMatmulDescCreate"`
	SetProduct     LtSetting                    `dl:"cublasLtMatmulDescSetAttribute|hipblasLtMatmulDescSetAttribute"`
	DropProduct    func(p LtProduct) Status     `dl:"cublasLtMatmulDescDestroy|hipblasLtMatmulDescDestroy"`
	NewLayout      LtLaying                     `dl:"cublasLtMatrixLayoutCreate|hipblasLtMatrixLayoutCreate"`
	DropLayout     func(l LtLayout) Status      `dl:"cublasLtMatrixLayoutDestroy|hipblasLtMatrixLayoutDestroy"`
	NewPreference  func(p *LtPreference) Status `dl:"cublasLtMatmulPreferenceCreate|hipblasLtMatmulPreferenceCreate"`
	SetPreference  LtPreferring                 `dl:"cublasLtMatmulPreferenceSetAttribute|hipblasLtMatmulPreferenceSetAttribute"`
	DropPreference func(p LtPreference) Status  `dl:"cublasLtMatmulPreferenceDestroy|hipblasLtMatmulPreferenceDestroy"`
	Choose         LtChoosing                   `dl:"cublasLtMatmulAlgoGetHeuristic|hipblasLtMatmulAlgoGetHeuristic"`
	Multiply       LtMultiplying                `dl:"cublasLtMatmul|hipblasLtMatmul"`
	Text           func(s Status) string        `dl:"cublasLtGetStatusString|hipblasStatusToString" cap:"texts"`
	Version        func() uint64                `dl:"cublasLtGetVersion" cap:"versions"`
}

// LtSymbols is [Symbols] of that table.
func LtSymbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[Lt]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// LtCandidates are where the family's library may be, as [Family.BLASCandidates].
func (f *Family) LtCandidates(major int) []string {
	if f.Name == "hip" {
		major -= 6 // hipBLASLt 1 came with ROCm 7
	}
	return ofRelease(candidates(f.Lts, f.LtWheels), major)
}
