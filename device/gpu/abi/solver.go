package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// SolverHandle is cusolverDnHandle_t and hipsolverHandle_t.
type SolverHandle uintptr

// SolverStatus is cusolverStatus_t and hipsolverStatus_t, which agree in success alone.
type SolverStatus int32

// Solved is the status of a call that has succeeded.
const Solved SolverStatus = 0

func (s SolverStatus) String() string { return fmt.Sprintf("status %d", int32(s)) }

// SolverNumbers are the numbers in which the two libraries don't agree.
type SolverNumbers struct {
	Straight, Transposed, Conjugated int32 // operations on a matrix
	Lower, Upper                     int32 // triangles
	NoVectors, Vectors               int32
	Left, Right                      int32 // of what a matrix is multiplied with

	AllocFailed, InvalidValue, ArchMismatch, Internal, BadType, NotSupported SolverStatus
}

// SolverNumbers are a family's.
func (f *Family) SolverNumbers() SolverNumbers {
	if f.Name == "hip" {
		return SolverNumbers{Straight: 111, Transposed: 112, Conjugated: 113, Lower: 122, Upper: 121, NoVectors: 201,
			Vectors: 202, Left: 141, Right: 142, AllocFailed: 2, InvalidValue: 3, Internal: 6, NotSupported: 7, ArchMismatch: 8,
			BadType: 13}
	}
	return SolverNumbers{Straight: 0, Transposed: 1, Conjugated: 2, Lower: 0, Upper: 1, NoVectors: 0, Vectors: 1, Right: 1,
		AllocFailed: 2, InvalidValue: 3, ArchMismatch: 4, Internal: 7, BadType: 8, NotSupported: 9}
}

// Signatures of steps, which are LAPACK's. Matrices have dense columns and lie in the device's memory, as vectors,
// pivots and info do; work is memory of so many elements.
type (
	PotrfSizing = func(h SolverHandle, uplo, n int32, a uintptr, pitch int32, work *int32) SolverStatus
	PotrfCall   = func(h SolverHandle, uplo, n int32, a uintptr, pitch int32, work uintptr, size int32,
		info uintptr) SolverStatus
	PotrsCall = func(h SolverHandle, uplo, n, columns int32, a uintptr, pitch int32, b uintptr, pitchB int32,
		info uintptr) SolverStatus
	GetrfSizing = func(h SolverHandle, m, n int32, a uintptr, pitch int32, work *int32) SolverStatus
	GetrfCall   = func(h SolverHandle, m, n int32, a uintptr, pitch int32, work, pivots, info uintptr) SolverStatus
	GetrsCall   = func(h SolverHandle, op, n, columns int32, a uintptr, pitch int32, pivots, b uintptr, pitchB int32,
		info uintptr) SolverStatus
	GeqrfCall = func(h SolverHandle, m, n int32, a uintptr, pitch int32, tau, work uintptr, size int32,
		info uintptr) SolverStatus
	OrgqrSizing = func(h SolverHandle, m, n, k int32, a uintptr, pitch int32, tau uintptr, work *int32) SolverStatus
	OrgqrCall   = func(h SolverHandle, m, n, k int32, a uintptr, pitch int32, tau, work uintptr, size int32,
		info uintptr) SolverStatus
	OrmqrSizing = func(h SolverHandle, side, op, m, n, k int32, a uintptr, pitch int32, tau, c uintptr, pitchC int32,
		work *int32) SolverStatus
	OrmqrCall = func(h SolverHandle, side, op, m, n, k int32, a uintptr, pitch int32, tau, c uintptr, pitchC int32,
		work uintptr, size int32, info uintptr) SolverStatus
	SyevdSizing = func(h SolverHandle, vectors, uplo, n int32, a uintptr, pitch int32, values uintptr,
		work *int32) SolverStatus
	SyevdCall = func(h SolverHandle, vectors, uplo, n int32, a uintptr, pitch int32, values, work uintptr, size int32,
		info uintptr) SolverStatus
	GesvdSizing = func(h SolverHandle, m, n int32, work *int32) SolverStatus
	GesvdCall   = func(h SolverHandle, jobU, jobV int8, m, n int32, a uintptr, pitch int32, s, u uintptr, pitchU int32,
		v uintptr, pitchV int32, work uintptr, size int32, rwork, info uintptr) SolverStatus
)

// SolverFunctions are those for one type of elements. X stands for the type in names: [SolverSymbol].
type SolverFunctions struct {
	PotrfWork PotrfSizing `dl:"cusolverDnXpotrf_bufferSize|hipsolverDnXpotrf_bufferSize"`
	Potrf     PotrfCall   `dl:"cusolverDnXpotrf|hipsolverDnXpotrf"`
	Potrs     PotrsCall   `dl:"cusolverDnXpotrs|hipsolverDnXpotrs"`
	GetrfWork GetrfSizing `dl:"cusolverDnXgetrf_bufferSize|hipsolverDnXgetrf_bufferSize"`
	Getrf     GetrfCall   `dl:"cusolverDnXgetrf|hipsolverDnXgetrf"`
	Getrs     GetrsCall   `dl:"cusolverDnXgetrs|hipsolverDnXgetrs"`
	GeqrfWork GetrfSizing `dl:"cusolverDnXgeqrf_bufferSize|hipsolverDnXgeqrf_bufferSize"`
	Geqrf     GeqrfCall   `dl:"cusolverDnXgeqrf|hipsolverDnXgeqrf"`
	OrgqrWork OrgqrSizing `dl:"cusolverDnXorgqr_bufferSize|hipsolverDnXorgqr_bufferSize"`
	Orgqr     OrgqrCall   `dl:"cusolverDnXorgqr|hipsolverDnXorgqr"`
	OrmqrWork OrmqrSizing `dl:"cusolverDnXormqr_bufferSize|hipsolverDnXormqr_bufferSize"`
	Ormqr     OrmqrCall   `dl:"cusolverDnXormqr|hipsolverDnXormqr"`
	SyevdWork SyevdSizing `dl:"cusolverDnXsyevd_bufferSize|hipsolverDnXsyevd_bufferSize"`
	Syevd     SyevdCall   `dl:"cusolverDnXsyevd|hipsolverDnXsyevd"`
	GesvdWork GesvdSizing `dl:"cusolverDnXgesvd_bufferSize|hipsolverDnXgesvd_bufferSize"`
	Gesvd     GesvdCall   `dl:"cusolverDnXgesvd|hipsolverDnXgesvd"`
}

// SolverTypes are the letters of types in names: float32, float64, complex64 and complex128.
const SolverTypes = "SDCZ"

// SolverSymbol is the name of a function for a type, of a tag of [SolverFunctions].
func SolverSymbol(name string, letter byte) string {
	if letter == 'C' || letter == 'Z' {
		name = strings.NewReplacer("Xorgqr", "Xungqr", "Xormqr", "Xunmqr", "Xsyevd", "Xheevd").Replace(name)
	}
	return strings.Replace(name, "DnX", "Dn"+string(letter), 1)
}

// Solver is the functions of cuSOLVER and hipSOLVER, whose names with Dn have cuSOLVER's parameters. The tags are those
// of package internal/dl.
type Solver struct {
	Create    func(h *SolverHandle) SolverStatus          `dl:"cusolverDnCreate|hipsolverDnCreate"`
	Destroy   func(h SolverHandle) SolverStatus           `dl:"cusolverDnDestroy|hipsolverDnDestroy"`
	SetStream func(h SolverHandle, s Stream) SolverStatus `dl:"cusolverDnSetStream|hipsolverDnSetStream"`

	Of [len(SolverTypes)]SolverFunctions // by type
}

// SolverSymbols calls f with the fields of both tables, and with the names of their functions: of [SolverFunctions] for
// each type.
func SolverSymbols(f func(field reflect.StructField, names []string)) {
	for _, t := range []reflect.Type{reflect.TypeFor[Solver](), reflect.TypeFor[SolverFunctions]()} {
		for i := range t.NumField() {
			tag, ok := t.Field(i).Tag.Lookup("dl")
			if !ok {
				continue
			}
			letters := SolverTypes
			if !strings.Contains(tag, "DnX") {
				letters = "S"
			}
			for k := range len(letters) {
				var names []string
				for name := range strings.SplitSeq(tag, "|") {
					names = append(names, SolverSymbol(name, letters[k]))
				}
				f(t.Field(i), names)
			}
		}
	}
}

// SolverCandidates are where the family's solver may be, as [Family.BLASCandidates].
func (f *Family) SolverCandidates(major int) []string {
	return ofRelease(candidates(f.Solvers, f.SolverWheels), major-1) // cuSOLVER 12 came with CUDA 13, and 11 with CUDA 11
}
