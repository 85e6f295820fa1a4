package abi

import (
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// Signatures that several functions share. Addresses, of the device's memory and of the host's, and sizes in bytes are
// words.
type (
	Of[T any]       = func(x T) Result                      // something is done to x
	Ask[T any]      = func(x *T) Result                     // a value is written
	About[T, U any] = func(x *T, of U) Result               // a value of something
	On[T any]       = func(s Stream, x T) Result            // of a stream
	Making[T any]   = func(x *T, flags uint32) Result       // something is made
	Taking          = func(p *uintptr, bytes uint64) Result // memory is allocated
	TakingAs        = func(p *uintptr, bytes uint64, flags uint32) Result
	Texts           = func(r Result, text **byte) Result
	Attribute       = func(v *int32, attr int32, d Device) Result
	Reach           = func(can *int32, d, peer Device) Result
	Copying         = func(dst, src uintptr, n uint64, s Stream) Result
	CopyingAs       = func(dst, src uintptr, n uint64, kind int32, s Stream) Result
	Filling         = func(p uintptr, value uint8, n uint64, s Stream) Result
	Asking          = func(data *uint64, attr int32, p uintptr) Result
	AskingSeveral   = func(n uint32, attributes *int32, values *unsafe.Pointer, p uintptr) Result
	Calling         = func(s Stream, f, arg uintptr) Result
	Awaiting        = func(s Stream, p uintptr, value, flags, bits uint32) Result
	Opening         = func(p *uintptr, h IPCHandle, flags uint32) Result
	Listing         = func(g Graph, nodes *Node, n *uint64) Result
	Joining         = func(g Graph, from, to *Node, n *uint64) Result
	Instantiating   = func(x *Exec, g Graph, flags uint64) Result
	Naming          = func(text *byte, n int32, d Device) Result
	Range           = func(low, high *int32) Result
	Sizes           = func(free, total *uint64) Result
	Peering         = func(peer PeerRef, flags uint32) Result
	Streaming       = func(s *Stream, flags uint32, priority int32) Result
	Waiting         = func(s Stream, e Event, flags uint32) Result
	Recording       = func(e Event, s Stream) Result
	Timing          = func(ms *float32, start, end Event) Result
	Kind            = func(n Node, kind *int32) Result
	Running         = func(x Exec, s Stream) Result
	Updating        = func(x Exec, g Graph, node *Node, why *int32) Result
	Loading         = func(m *Module, image *byte) Result
	LoadingAs       = func(m *Module, image *byte, n uint32, options *int32, values *uintptr) Result
	LoadingCode     = func(c *Code, image *byte, jit *int32, jitValues *uintptr, jits uint32, options *int32,
		values *uintptr, n uint32) Result
	Finding    = func(f *Function, m Module, name *byte) Result
	FindingIn  = func(f *Function, c Code, name *byte) Result
	SettingOn  = func(attr, v int32, f Function, d Device) Result
	Describing = func(v *int32, attr int32, f Function) Result
	Setting    = func(f Function, attr, v int32) Result
	Parameter  = func(f Function, i uint64, at, bytes *uint64) Result
	Launching  = func(f Function, gx, gy, gz, bx, by, bz, shared uint32, s Stream,
		args, extra *unsafe.Pointer) Result
)

// Table is a library's functions. The tags are those of package internal/dl: CUDA's name, and HIP's. Capabilities of
// one library alone are "contexts", "parameters of functions" and "kernels without contexts" of CUDA, and "current
// devices", "architectures" and "signal memory" of HIP. Where a function of HIP takes an argument more, it's the last,
// which CUDA's function ignores.
type Table struct {
	Init       Of[uint32] `dl:"cuInit|hipInit"`
	GetVersion Ask[int32] `dl:"cuDriverGetVersion|hipRuntimeGetVersion"`

	DeviceCount     Ask[int32]                   `dl:"cuDeviceGetCount|hipGetDeviceCount"`
	DeviceGet       About[Device, int32]         `dl:"cuDeviceGet|hipDeviceGet"`
	DeviceName      Naming                       `dl:"cuDeviceGetName|hipDeviceGetName"`
	DeviceAttribute Attribute                    `dl:"cuDeviceGetAttribute|hipDeviceGetAttribute"`
	DeviceMemory    About[uint64, Device]        `dl:"cuDeviceTotalMem_v2|hipDeviceTotalMem"`
	DeviceUUID      About[[16]byte, Device]      `dl:"cuDeviceGetUuid_v2|hipDeviceGetUuid" cap:"UUIDs" since:"11.4"`
	HIPProperties   About[HIPProperties, Device] `dl:"hipGetDevicePropertiesR0600" cap:"architectures"`
	Priorities      Range                        `dl:"cuCtxGetStreamPriorityRange|hipDeviceGetStreamPriorityRange"`
	CanAccessPeer   Reach                        `dl:"cuDeviceCanAccessPeer|hipDeviceCanAccessPeer"`
	EnablePeer      Peering                      `dl:"cuCtxEnablePeerAccess|hipDeviceEnablePeerAccess"`
	DisablePeer     Of[PeerRef]                  `dl:"cuCtxDisablePeerAccess|hipDeviceDisablePeerAccess"`

	PrimaryRetain  About[Context, Device] `dl:"cuDevicePrimaryCtxRetain" cap:"contexts"`
	PrimaryRelease Of[Device]             `dl:"cuDevicePrimaryCtxRelease_v2" cap:"contexts"`
	Push           Of[Context]            `dl:"cuCtxPushCurrent_v2" cap:"contexts"`
	Pop            Ask[Context]           `dl:"cuCtxPopCurrent_v2" cap:"contexts"`
	GetContext     Ask[Context]           `dl:"cuCtxGetCurrent" cap:"contexts"`
	StreamContext  On[*Context]           `dl:"cuStreamGetCtx" cap:"contexts"`
	ErrorNameOf    Texts                  `dl:"cuGetErrorName" cap:"contexts"`
	ErrorTextOf    Texts                  `dl:"cuGetErrorString" cap:"contexts"`
	Copy           Copying                `dl:"cuMemcpyAsync" cap:"contexts"`
	ModuleLoadEx   LoadingAs              `dl:"cuModuleLoadDataEx" cap:"contexts"`
	FunctionSet    Setting                `dl:"cuFuncSetAttribute" cap:"contexts"`

	GetDevice    Ask[Device]           `dl:"hipGetDevice" cap:"current devices"`
	SetDevice    Of[Device]            `dl:"hipSetDevice" cap:"current devices"`
	StreamDevice On[*Device]           `dl:"hipStreamGetDevice" cap:"current devices"`
	ErrorName    func(r Result) string `dl:"hipGetErrorName" cap:"current devices"`
	ErrorText    func(r Result) string `dl:"hipGetErrorString" cap:"current devices"`
	CopyAs       CopyingAs             `dl:"hipMemcpyAsync" cap:"current devices"`
	ExtMalloc    TakingAs              `dl:"hipExtMallocWithFlags" cap:"signal memory"`

	MemAlloc          Taking        `dl:"cuMemAlloc_v2|hipMalloc"`
	MemFree           Of[uintptr]   `dl:"cuMemFree_v2|hipFree"`
	MemHostAlloc      TakingAs      `dl:"cuMemHostAlloc|hipHostMalloc"`
	MemHostFree       Of[uintptr]   `dl:"cuMemFreeHost|hipHostFree"`
	MemInfo           Sizes         `dl:"cuMemGetInfo_v2|hipMemGetInfo"`
	PointerAttribute  Asking        `dl:"cuPointerGetAttribute|hipPointerGetAttribute"`
	PointerAttributes AskingSeveral `dl:"cuPointerGetAttributes|hipDrvPointerGetAttributes" cap:"several attributes of pointers" since:"7.0"`
	Fill              Filling       `dl:"cuMemsetD8Async|hipMemsetD8Async"`

	StreamCreate  Streaming  `dl:"cuStreamCreateWithPriority|hipStreamCreateWithPriority"`
	StreamDestroy Of[Stream] `dl:"cuStreamDestroy_v2|hipStreamDestroy"`
	StreamQuery   Of[Stream] `dl:"cuStreamQuery|hipStreamQuery"`
	StreamWait    Waiting    `dl:"cuStreamWaitEvent|hipStreamWaitEvent"`
	HostFunc      Calling    `dl:"cuLaunchHostFunc|hipLaunchHostFunc"`
	WaitValue     Awaiting   `dl:"cuStreamWaitValue32_v2|hipStreamWaitValue32" cap:"waits for values" since:"11.7"`

	EventCreate  Making[Event] `dl:"cuEventCreate|hipEventCreateWithFlags"`
	EventDestroy Of[Event]     `dl:"cuEventDestroy_v2|hipEventDestroy"`
	EventRecord  Recording     `dl:"cuEventRecord|hipEventRecord"`
	EventQuery   Of[Event]     `dl:"cuEventQuery|hipEventQuery"`
	EventElapsed Timing        `dl:"cuEventElapsedTime|hipEventElapsedTime"`

	IPCGetMem    About[IPCHandle, uintptr] `dl:"cuIpcGetMemHandle|hipIpcGetMemHandle" cap:"IPC"`
	IPCOpenMem   Opening                   `dl:"cuIpcOpenMemHandle_v2|hipIpcOpenMemHandle" cap:"IPC" since:"11.0"`
	IPCCloseMem  Of[uintptr]               `dl:"cuIpcCloseMemHandle|hipIpcCloseMemHandle" cap:"IPC"`
	IPCGetEvent  About[IPCHandle, Event]   `dl:"cuIpcGetEventHandle|hipIpcGetEventHandle" cap:"IPC"`
	IPCOpenEvent About[Event, IPCHandle]   `dl:"cuIpcOpenEventHandle|hipIpcOpenEventHandle" cap:"IPC"`

	CaptureMode Ask[int32] `dl:"cuThreadExchangeStreamCaptureMode|hipThreadExchangeStreamCaptureMode" cap:"capture modes of threads" since:"10.1"`

	IsCapturing  On[*int32]    `dl:"cuStreamIsCapturing|hipStreamIsCapturing" cap:"graphs"`
	BeginCapture On[int32]     `dl:"cuStreamBeginCapture_v2|hipStreamBeginCapture" cap:"graphs" since:"11.4"`
	EndCapture   On[*Graph]    `dl:"cuStreamEndCapture|hipStreamEndCapture" cap:"graphs"`
	GraphDestroy Of[Graph]     `dl:"cuGraphDestroy|hipGraphDestroy" cap:"graphs"`
	GraphNodes   Listing       `dl:"cuGraphGetNodes|hipGraphGetNodes" cap:"graphs"`
	GraphEdges   Joining       `dl:"cuGraphGetEdges|hipGraphGetEdges" cap:"graphs"`
	NodeType     Kind          `dl:"cuGraphNodeGetType|hipGraphNodeGetType" cap:"graphs"`
	Instantiate  Instantiating `dl:"cuGraphInstantiateWithFlags|hipGraphInstantiateWithFlags" cap:"graphs"`
	GraphLaunch  Running       `dl:"cuGraphLaunch|hipGraphLaunch" cap:"graphs"`
	ExecDestroy  Of[Exec]      `dl:"cuGraphExecDestroy|hipGraphExecDestroy" cap:"graphs"`
	ExecUpdate   Updating      `dl:"cuGraphExecUpdate|hipGraphExecUpdate" cap:"graphs"`

	ModuleLoad        Loading    `dl:"cuModuleLoadData|hipModuleLoadData" cap:"modules"`
	ModuleUnload      Of[Module] `dl:"cuModuleUnload|hipModuleUnload" cap:"modules"`
	ModuleFunction    Finding    `dl:"cuModuleGetFunction|hipModuleGetFunction" cap:"modules"`
	FunctionAttribute Describing `dl:"cuFuncGetAttribute|hipFuncGetAttribute" cap:"modules"`

	FunctionLaunch    Launching `dl:"cuLaunchKernel|hipModuleLaunchKernel" cap:"modules"`
	FunctionParameter Parameter `dl:"cuFuncGetParamInfo" cap:"parameters of functions" since:"12.4"`

	CodeLoad   LoadingCode         `dl:"cuLibraryLoadData" cap:"kernels without contexts" since:"12.0"`
	CodeUnload Of[Code]            `dl:"cuLibraryUnload" cap:"kernels without contexts" since:"12.0"`
	CodeModule About[Module, Code] `dl:"cuLibraryGetModule" cap:"kernels without contexts" since:"12.0"`
	CodeKernel FindingIn           `dl:"cuLibraryGetKernel" cap:"kernels without contexts" since:"12.0"`
	KernelSet  SettingOn           `dl:"cuKernelSetAttribute" cap:"kernels without contexts" since:"12.0"`
}

// Symbols calls f for every function of the table: its names, CUDA's and HIP's, or the only one.
func Symbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[Table]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// Family is one of the two libraries, whose devices have its name.
type Family struct {
	Name   string   // "cuda"
	Title  string   // as errors call it
	Prefix string   // of its functions
	Own    string   // the capability that it must have
	Places []string // where the library may be, in the order in which that's tried, for the dynamic linker or patterns
	Wheels []string // and within a folder of Python packages

	Compiler       string   // what errors call that for sources
	Compilers      []string // where that may be, likewise
	CompilerWheels []string // and within a folder of Python packages

	BLAS       string   // what errors call the library of products
	BLASes     []string // where that may be, likewise
	BLASWheels []string // and within a folder of Python packages

	Lt       string   // what errors call the library of fused products
	Lts      []string // where that may be, likewise
	LtWheels []string // and within a folder of Python packages

	FFT       string   // what errors call the library of transforms
	FFTs      []string // where that may be, likewise
	FFTWheels []string // and within a folder of Python packages

	Solver       string   // what errors call the library of linear algebra
	Solvers      []string // where that may be, likewise
	SolverWheels []string // and within a folder of Python packages

	Sparse       string   // what errors call the library of sparse matrices
	Sparses      []string // where that may be, likewise
	SparseWheels []string // and within a folder of Python packages
}

// Families are both.
var Families = []Family{
	{Name: "cuda", Title: "CUDA", Prefix: "cu", Own: "contexts",
		Places:   []string{"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"},
		Compiler: "NVRTC",
		Compilers: []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
			"/usr/local/cuda/lib64/libnvrtc.so", "/usr/local/cuda-*/lib64/libnvrtc.so"},
		CompilerWheels: []string{"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.1*"},
		BLAS:           "cuBLAS",
		BLASes: []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so",
			"/usr/local/cuda/lib64/libcublas.so", "/usr/local/cuda-*/lib64/libcublas.so"},
		BLASWheels: []string{"nvidia/cu13/lib/libcublas.so.13", "nvidia/cublas/lib/libcublas.so.1*"},
		Lt:         "cuBLASLt",
		Lts: []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so",
			"/usr/local/cuda/lib64/libcublasLt.so", "/usr/local/cuda-*/lib64/libcublasLt.so"},
		LtWheels: []string{"nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.1*"},
		FFT:      "cuFFT",
		FFTs: []string{"libcufft.so.12", "libcufft.so.11", "libcufft.so.10", "libcufft.so",
			"/usr/local/cuda/lib64/libcufft.so", "/usr/local/cuda-*/lib64/libcufft.so"},
		FFTWheels: []string{"nvidia/cu13/lib/libcufft.so.12", "nvidia/cufft/lib/libcufft.so.1*"},
		Solver:    "cuSOLVER",
		Solvers: []string{"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so",
			"/usr/local/cuda/lib64/libcusolver.so", "/usr/local/cuda-*/lib64/libcusolver.so"},
		SolverWheels: []string{"nvidia/cu13/lib/libcusolver.so.12", "nvidia/cusolver/lib/libcusolver.so.1*"},
		Sparse:       "cuSPARSE",
		Sparses: []string{"libcusparse.so.12", "libcusparse.so.11", "libcusparse.so",
			"/usr/local/cuda/lib64/libcusparse.so", "/usr/local/cuda-*/lib64/libcusparse.so"},
		SparseWheels: []string{"nvidia/cu13/lib/libcusparse.so.12", "nvidia/cusparse/lib/libcusparse.so.1*"}},
	{Name: "hip", Title: "HIP", Prefix: "hip", Own: "current devices",
		Places: []string{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
			"/opt/rocm/lib/libamdhip64.so", "/opt/rocm-*/lib/libamdhip64.so"},
		Wheels:   []string{"torch/lib/libamdhip64.so*", "_rocm_sdk_core/lib/libamdhip64.so*"},
		Compiler: "hiprtc",
		Compilers: []string{"libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "/opt/rocm/lib/libhiprtc.so",
			"/opt/rocm-*/lib/libhiprtc.so", "libamdhip64.so.5"}, // Debian's has hiprtc in it
		CompilerWheels: []string{"torch/lib/libhiprtc.so*", "_rocm_sdk_core/lib/libhiprtc.so*"},
		BLAS:           "hipBLAS",
		BLASes: []string{"libhipblas.so.3", "libhipblas.so.2", "libhipblas.so", "/opt/rocm/lib/libhipblas.so",
			"/opt/rocm-*/lib/libhipblas.so"},
		BLASWheels: []string{"torch/lib/libhipblas.so*", "_rocm_sdk_libraries*/lib/libhipblas.so*"},
		Lt:         "hipBLASLt",
		Lts: []string{"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so", "/opt/rocm/lib/libhipblaslt.so",
			"/opt/rocm-*/lib/libhipblaslt.so"},
		LtWheels: []string{"torch/lib/libhipblaslt.so*", "_rocm_sdk_libraries*/lib/libhipblaslt.so*"},
		FFT:      "hipFFT",
		FFTs: []string{"libhipfft.so.0", "libhipfft.so", "/opt/rocm/lib/libhipfft.so",
			"/opt/rocm-*/lib/libhipfft.so"},
		FFTWheels: []string{"torch/lib/libhipfft.so*", "_rocm_sdk_libraries*/lib/libhipfft.so*"},
		Solver:    "hipSOLVER",
		Solvers: []string{"libhipsolver.so.1", "libhipsolver.so.0", "libhipsolver.so",
			"/opt/rocm/lib/libhipsolver.so", "/opt/rocm-*/lib/libhipsolver.so"},
		SolverWheels: []string{"torch/lib/libhipsolver.so*", "_rocm_sdk_libraries*/lib/libhipsolver.so*"},
		Sparse:       "hipSPARSE",
		Sparses: []string{"libhipsparse.so.4", "libhipsparse.so.1", "libhipsparse.so.0", "libhipsparse.so",
			"/opt/rocm/lib/libhipsparse.so", "/opt/rocm-*/lib/libhipsparse.so"},
		SparseWheels: []string{"torch/lib/libhipsparse.so*", "_rocm_sdk_libraries*/lib/libhipsparse.so*"}},
}

// FamilyNamed returns one by the name of its devices; nil if there is none.
func FamilyNamed(name string) *Family {
	at := slices.IndexFunc(Families, func(f Family) bool { return f.Name == name })
	if at < 0 {
		return nil
	}
	return &Families[at]
}
