package abi

// Numbers of clFFT's.
const (
	FFTComplex   int32 = 1 // layouts: pairs of real and imaginary parts,
	FFTHermitian int32 = 3 // likewise, of which the second half is left out,
	FFTReal      int32 = 5

	FFTSingle int32 = 1 // precisions
	FFTDouble int32 = 2

	FFTForward  int32 = -1 // directions
	FFTBackward int32 = 1

	FFTInPlace    int32 = 1 // where results are
	FFTOutOfPlace int32 = 2
)

// Results of clFFT's beyond OpenCL's that say that it doesn't do a transform.
const (
	FFTNotImplemented           Result = 4097
	FFTTransposedNotImplemented Result = 4098
	FFTNoDouble                 Result = 4103
)

// FFTPlan is clfftPlanHandle.
type FFTPlan uintptr

// FFTSetup is clfftSetupData: the version that the caller knows. All zero: clFFT's own.
type FFTSetup struct {
	Major, Minor, Patch uint32
	Debug               uint64
}

// Signatures of clFFT's.
type (
	SettingPlan[T any]  = func(p FFTPlan, x T) Result
	SettingPlan2[T any] = func(p FFTPlan, x, y T) Result
	SettingSteps        = func(p FFTPlan, dims int32, steps *uintptr) Result
	MakingPlan          = func(p *FFTPlan, c Context, dims int32, lengths *uintptr) Result
	BakingPlan          = func(p FFTPlan, n uint32, q *Queue, done, arg uintptr) Result
	Transforming        = func(p FFTPlan, direction int32, n uint32, q *Queue, waits uint32, events, made *Event,
		in, out *Mem, tmp Mem) Result
)

// CLFFT is the functions of clFFT that are used. It calls OpenCL by the loader that the dynamic linker finds, as
// [CLBlast] does.
type CLFFT struct {
	Setup    func(x *FFTSetup) Result `dl:"clfftSetup"`
	Teardown func() Result            `dl:"clfftTeardown"`

	Version func(major, minor, patch *uint32) Result `dl:"clfftGetVersion"`

	Plan        MakingPlan                                             `dl:"clfftCreateDefaultPlan"`
	Precision   SettingPlan[int32]                                     `dl:"clfftSetPlanPrecision"`
	Layout      SettingPlan2[int32]                                    `dl:"clfftSetLayout"`
	Place       SettingPlan[int32]                                     `dl:"clfftSetResultLocation"`
	Batch       SettingPlan[uintptr]                                   `dl:"clfftSetPlanBatchSize"`
	InSteps     SettingSteps                                           `dl:"clfftSetPlanInStride"`
	OutSteps    SettingSteps                                           `dl:"clfftSetPlanOutStride"`
	Distance    SettingPlan2[uintptr]                                  `dl:"clfftSetPlanDistance"`
	Scale       func(p FFTPlan, direction int32, scale float32) Result `dl:"clfftSetPlanScale"`
	Bake        BakingPlan                                             `dl:"clfftBakePlan"`
	Transform   Transforming                                           `dl:"clfftEnqueueTransform"`
	DestroyPlan func(p *FFTPlan) Result                                `dl:"clfftDestroyPlan"`
}

// CLFFTNames are what the dynamic linker looks for.
var CLFFTNames = []string{"libclFFT.so.2", "libclFFT.so", "libclFFT.2.dylib"}

// fftNames are clFFT's for results that are none of OpenCL's.
var fftNames = map[Result]string{
	4096: "BUGCHECK", FFTNotImplemented: "NOTIMPLEMENTED", FFTTransposedNotImplemented: "TRANSPOSED_NOTIMPLEMENTED",
	4099: "FILE_NOT_FOUND", 4100: "FILE_CREATE_FAILURE", 4101: "VERSION_MISMATCH", 4102: "INVALID_PLAN",
	FFTNoDouble: "DEVICE_NO_DOUBLE", 4104: "DEVICE_MISMATCH",
}

// FFTName is clFFT's name of a result; empty if it has none.
func (r Result) FFTName() string {
	if s, ok := fftNames[r]; ok {
		return "CLFFT_" + s
	}
	return r.Name()
}
