package abi

import "fmt"

// Result is CUresult and hipError_t, which agree in all values that are named here.
type Result int32

// The results that are used.
const (
	Success                 Result = 0
	InvalidValue            Result = 1
	OutOfMemory             Result = 2
	NotInitialized          Result = 3
	InvalidConfiguration    Result = 9 // HIP's alone
	Deinitialized           Result = 4
	NoDevice                Result = 100
	InvalidDevice           Result = 101
	InvalidImage            Result = 200
	InvalidContext          Result = 201
	NoBinaryForGPU          Result = 209
	ECCUncorrectable        Result = 214
	PeerAccessUnsupported   Result = 217
	InvalidPTX              Result = 218
	InvalidSource           Result = 300
	InvalidHandle           Result = 400
	NotFound                Result = 500
	NotReady                Result = 600
	IllegalAddress          Result = 700
	LaunchOutOfResources    Result = 701
	LaunchTimeout           Result = 702
	PeerAccessEnabled       Result = 704
	PeerAccessNotEnabled    Result = 705
	ContextIsDestroyed      Result = 709
	Assert                  Result = 710
	LaunchFailed            Result = 719
	NotSupported            Result = 801
	CaptureUnsupported      Result = 900
	CaptureInvalidated      Result = 901
	CaptureMerge            Result = 902
	CaptureUnmatched        Result = 903
	CaptureUnjoined         Result = 904
	CaptureIsolation        Result = 905
	CaptureImplicit         Result = 906
	CapturedEvent           Result = 907
	CaptureWrongThread      Result = 908
	GraphExecUpdateFailure  Result = 910
	CallRequiresNewerDriver Result = 36 // CUDA's alone, as the rest

	NVLinkUncorrectable   Result = 220
	UnsupportedPTX        Result = 222
	Contained             Result = 226
	HardwareStackError    Result = 714
	IllegalInstruction    Result = 715
	MisalignedAddress     Result = 716
	InvalidAddressSpace   Result = 717
	InvalidPC             Result = 718
	TensorMemoryLeak      Result = 721
	DeviceUnavailable     Result = 46
	SystemNotReady        Result = 802
	SystemDriverMismatch  Result = 803
	CompatNotSupportedDev Result = 804
	MPSClientTerminated   Result = 810
	ExternalDevice        Result = 911
	Unknown               Result = 999
)

func (r Result) String() string { return fmt.Sprintf("result %d", int32(r)) }

// Capture reports whether the result is one of those about captures.
func (r Result) Capture() bool { return r >= CaptureUnsupported && r <= CaptureWrongThread }

// Sticky reports whether the context, and so the device for this process, is lost for good.
func (r Result) Sticky() bool {
	switch r {
	case ECCUncorrectable, NVLinkUncorrectable, Contained, IllegalAddress, LaunchTimeout, ContextIsDestroyed, Assert,
		HardwareStackError, IllegalInstruction, MisalignedAddress, InvalidAddressSpace, InvalidPC, LaunchFailed,
		TensorMemoryLeak, MPSClientTerminated, ExternalDevice, Unknown:
		return true
	}
	return false
}

// The libraries' handles, which say nothing to others. A PeerRef names a device in functions about peers: the
// context in CUDA, the number in HIP.
type (
	Device  int32
	Context uintptr
	PeerRef uintptr
	Stream  uintptr
	Event   uintptr
	Graph   uintptr
	Exec    uintptr
	Node    uintptr

	Module   uintptr
	Code     uintptr // CUDA's CUlibrary: modules of one image, on each device
	Function uintptr // also CUDA's CUkernel, where it's launched
	Program  uintptr // the compiler's
)

// IPCHandle is CUipcMemHandle, CUipcEventHandle and HIP's, which are passed by value.
type IPCHandle struct{ Words [8]uint64 }

// Flags and other constants, the same in both.
const (
	StreamNonBlocking = 0x1

	EventDisableTiming = 0x2
	EventInterprocess  = 0x4

	HostPortable       = 0x1 // of MemHostAlloc, and of MemHostRegister
	HostMapped         = 0x2
	IPCLazyPeerAccess  = 0x1
	WaitValueGreater   = 0x0 // or equal
	WaitValueEqual     = 0x1
	AllBits            = 0xffffffff // what WaitValue compares
	SignalMemory       = 0x2        // of ExtMalloc; HIP's alone
	CopyByAddresses    = 4          // hipMemcpyDefault
	CaptureModeGlobal  = 0
	CaptureModeRelaxed = 2

	CaptureNone      = 0
	CaptureActive    = 1
	CaptureDiscarded = 2 // the status of a capture that was invalidated

	PointerMemoryType    = 2
	PointerDeviceOrdinal = 9
	PointerRangeStart    = 11
	PointerRangeSize     = 12

	MemoryHost    = 1 // in HIP from ROCm 6 on; before, they are less by one
	MemoryDevice  = 2
	MemoryManaged = 3 // hipMemoryTypeManaged

	NodeKernel      = 0
	NodeMemcpy      = 1
	NodeMemset      = 2
	NodeHost        = 3
	NodeGraph       = 4
	NodeEmpty       = 5
	NodeWaitEvent   = 6
	NodeEventRecord = 7
	NodeBatchMemOp  = 12 // of CUDA
	NodeBatchMemHIP = 14

	JITErrorLog      = 5 // options of ModuleLoadEx: where the translator of PTX writes, and how much
	JITErrorLogBytes = 6

	FunctionMaxThreads = 0 // attributes of functions
	FunctionShared     = 1
	FunctionLocal      = 3
	FunctionRegisters  = 4
	FunctionDynamic    = 8 // dynamic shared memory, at most
)

// StreamPriorities is the attribute of devices that says whether streams have priorities, the same in both.
const StreamPriorities = 78

// HIPProperties is hipDeviceProp_tR0600, the structure of ROCm 6 and later, as far as it's read.
type HIPProperties struct {
	_            [1160]byte
	Architecture [256]byte  // with its features, "gfx90a:sramecc+:xnack-"
	_            [2680]byte // it has 56 bytes more, and room for those of later releases
}

// Other attributes of devices have numbers of their own in each library.
const (
	CUDAMultiprocessors = 16
	CUDAShared          = 8  // bytes of shared memory of a block
	CUDASharedAtMost    = 97 // where the function is set to it
	CUDAMajor           = 75 // of the compute capability
	CUDAMinor           = 76
	HIPMajor            = 23 // as the digits of an architecture's name: 9 and 4 of gfx942
	HIPMinor            = 61
	HIPMultiprocessors  = 63
	HIPShared           = 74
)
