package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// FFTPlan is cufftHandle, which has 32 bits, and hipfftHandle.
type FFTPlan uintptr

// FFTResult is cufftResult and hipfftResult, which have the same numbers.
type FFTResult int32

// Results of calls.
const (
	Transformed       FFTResult = 0
	FFTInvalidPlan    FFTResult = 1
	FFTAllocFailed    FFTResult = 2
	FFTInvalidType    FFTResult = 3
	FFTInvalidValue   FFTResult = 4
	FFTInternalError  FFTResult = 5
	FFTExecFailed     FFTResult = 6
	FFTSetupFailed    FFTResult = 7
	FFTInvalidSize    FFTResult = 8
	FFTUnaligned      FFTResult = 9
	FFTInvalidDevice  FFTResult = 11
	FFTNoWorkspace    FFTResult = 13
	FFTNotImplemented FFTResult = 14
	FFTNotSupported   FFTResult = 16
)

// Lists of parameters and parsers that hipFFT fails with; cuFFT has had them up to 12.
const (
	FFTIncomplete FFTResult = 10
	FFTParseError FFTResult = 12
)

var fftResults = map[FFTResult]string{Transformed: "SUCCESS", FFTInvalidPlan: "INVALID_PLAN",
	FFTAllocFailed: "ALLOC_FAILED", FFTInvalidType: "INVALID_TYPE", FFTInvalidValue: "INVALID_VALUE",
	FFTInternalError: "INTERNAL_ERROR", FFTExecFailed: "EXEC_FAILED", FFTSetupFailed: "SETUP_FAILED",
	FFTInvalidSize: "INVALID_SIZE", FFTUnaligned: "UNALIGNED_DATA", FFTInvalidDevice: "INVALID_DEVICE",
	FFTNoWorkspace: "NO_WORKSPACE", FFTNotImplemented: "NOT_IMPLEMENTED", FFTNotSupported: "NOT_SUPPORTED",
	FFTIncomplete: "INCOMPLETE_PARAMETER_LIST", FFTParseError: "PARSE_ERROR"}

func (r FFTResult) String() string {
	if s, ok := fftResults[r]; ok {
		return s
	}
	return fmt.Sprintf("result %d", int32(r))
}

// FFTResultNames are the names of all results, without CUFFT_ and HIPFFT_.
func FFTResultNames() map[FFTResult]string { return fftResults }

// Numbers of cufftType and hipfftType, and directions.
const (
	R2C int32 = 0x2a
	C2R int32 = 0x2c
	C2C int32 = 0x29
	D2Z int32 = 0x6a
	Z2D int32 = 0x6c
	Z2Z int32 = 0x69

	FFTForward int32 = -1
	FFTInverse int32 = 1
)

// Signatures of transforms. Sizes are those of the numbers, the outermost first; each side has the sizes of the memory
// that it lies in (embed), the distances of neighbours of the innermost dimension, and of transforms, in elements.
type (
	MakingFFT = func(p FFTPlan, rank int32, n, inEmbed *int64, inStep, inNext int64, outEmbed *int64, outStep,
		outNext int64, typ int32, count int64, work *uint64) FFTResult
	TransformingBoth = func(p FFTPlan, in, out uintptr, direction int32) FFTResult
	TransformingOne  = func(p FFTPlan, in, out uintptr) FFTResult
)

// FFT is the functions of cuFFT and hipFFT. The tags are those of package internal/dl.
type FFT struct {
	Create      func(p *FFTPlan) FFTResult                `dl:"cufftCreate|hipfftCreate"`
	Allocates   func(p FFTPlan, itself int32) FFTResult   `dl:"cufftSetAutoAllocation|hipfftSetAutoAllocation"`
	Make        MakingFFT                                 `dl:"cufftMakePlanMany64|hipfftMakePlanMany64"`
	SetStream   func(p FFTPlan, s Stream) FFTResult       `dl:"cufftSetStream|hipfftSetStream"`
	SetWorkArea func(p FFTPlan, memory uintptr) FFTResult `dl:"cufftSetWorkArea|hipfftSetWorkArea"`
	C2C         TransformingBoth                          `dl:"cufftExecC2C|hipfftExecC2C"`
	Z2Z         TransformingBoth                          `dl:"cufftExecZ2Z|hipfftExecZ2Z"`
	R2C         TransformingOne                           `dl:"cufftExecR2C|hipfftExecR2C"`
	D2Z         TransformingOne                           `dl:"cufftExecD2Z|hipfftExecD2Z"`
	C2R         TransformingOne                           `dl:"cufftExecC2R|hipfftExecC2R"`
	Z2D         TransformingOne                           `dl:"cufftExecZ2D|hipfftExecZ2D"`
	Destroy     func(p FFTPlan) FFTResult                 `dl:"cufftDestroy|hipfftDestroy"`
	Version     func(v *int32) FFTResult                  `dl:"cufftGetVersion|hipfftGetVersion"`
}

// FFTSymbols is [Symbols] of that table.
func FFTSymbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[FFT]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// FFTCandidates are where the family's library of transforms may be, as [Family.BLASCandidates].
func (f *Family) FFTCandidates(major int) []string {
	return ofRelease(candidates(f.FFTs, f.FFTWheels), major-1) // cuFFT 12 came with CUDA 13; hipFFT has one number
}
