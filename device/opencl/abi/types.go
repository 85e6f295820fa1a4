package abi

// Handles of the library. Zero is none.
type (
	Platform uintptr
	Device   uintptr
	Context  uintptr
	Queue    uintptr
	Mem      uintptr
	Program  uintptr
	Kernel   uintptr
	Event    uintptr
	Commands uintptr // a command buffer
)

// Result is what functions return: 0 or an error, which is negative. An event's status is one too: 0 if its command is
// done, positive before, and negative if it failed.
type Result int32

// The results that the driver tells apart.
const (
	Success              Result = 0
	DeviceNotAvailable   Result = -2
	CompilerNotAvailable Result = -3
	MemAllocationFailure Result = -4
	OutOfResources       Result = -5
	OutOfHostMemory      Result = -6
	BuildProgramFailure  Result = -11
	InvalidValue         Result = -30
	InvalidDevice        Result = -33
	InvalidContext       Result = -34
	InvalidCommandQueue  Result = -36
	InvalidBinary        Result = -42
	InvalidKernelName    Result = -46
	InvalidArgIndex      Result = -49
	InvalidArgValue      Result = -50
	InvalidArgSize       Result = -51
	InvalidKernelArgs    Result = -52
	InvalidWorkGroupSize Result = -54
	InvalidBufferSize    Result = -61
	PlatformNotFound     Result = -1001
)

// names are the library's for results. It has no function that tells them.
var names = map[Result]string{
	0: "CL_SUCCESS", -1: "CL_DEVICE_NOT_FOUND", -2: "CL_DEVICE_NOT_AVAILABLE", -3: "CL_COMPILER_NOT_AVAILABLE",
	-4: "CL_MEM_OBJECT_ALLOCATION_FAILURE", -5: "CL_OUT_OF_RESOURCES", -6: "CL_OUT_OF_HOST_MEMORY",
	-7: "CL_PROFILING_INFO_NOT_AVAILABLE", -8: "CL_MEM_COPY_OVERLAP", -11: "CL_BUILD_PROGRAM_FAILURE",
	-12: "CL_MAP_FAILURE", -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
	-14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", -15: "CL_COMPILE_PROGRAM_FAILURE",
	-16: "CL_LINKER_NOT_AVAILABLE", -17: "CL_LINK_PROGRAM_FAILURE", -19: "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
	-30: "CL_INVALID_VALUE", -31: "CL_INVALID_DEVICE_TYPE", -32: "CL_INVALID_PLATFORM", -33: "CL_INVALID_DEVICE",
	-34: "CL_INVALID_CONTEXT", -35: "CL_INVALID_QUEUE_PROPERTIES", -36: "CL_INVALID_COMMAND_QUEUE",
	-37: "CL_INVALID_HOST_PTR", -38: "CL_INVALID_MEM_OBJECT", -42: "CL_INVALID_BINARY",
	-43: "CL_INVALID_BUILD_OPTIONS", -44: "CL_INVALID_PROGRAM", -45: "CL_INVALID_PROGRAM_EXECUTABLE",
	-46: "CL_INVALID_KERNEL_NAME", -47: "CL_INVALID_KERNEL_DEFINITION", -48: "CL_INVALID_KERNEL",
	-49: "CL_INVALID_ARG_INDEX", -50: "CL_INVALID_ARG_VALUE", -51: "CL_INVALID_ARG_SIZE",
	-52: "CL_INVALID_KERNEL_ARGS", -53: "CL_INVALID_WORK_DIMENSION", -54: "CL_INVALID_WORK_GROUP_SIZE",
	-55: "CL_INVALID_WORK_ITEM_SIZE", -56: "CL_INVALID_GLOBAL_OFFSET", -57: "CL_INVALID_EVENT_WAIT_LIST",
	-58: "CL_INVALID_EVENT", -59: "CL_INVALID_OPERATION", -61: "CL_INVALID_BUFFER_SIZE",
	-63: "CL_INVALID_GLOBAL_WORK_SIZE", -64: "CL_INVALID_PROPERTY", -66: "CL_INVALID_COMPILER_OPTIONS",
	-67: "CL_INVALID_LINKER_OPTIONS", -1001: "CL_PLATFORM_NOT_FOUND_KHR",
}

// Name is the library's name of a result; empty if it's no result of the standard.
func (r Result) Name() string { return names[r] }

// Lost reports whether a device, or the context that it's in, has failed for good: handles that were good aren't any
// more.
func (r Result) Lost() bool {
	switch r {
	case DeviceNotAvailable, InvalidDevice, InvalidContext, InvalidCommandQueue:
		return true
	}
	return false
}

// Questions about platforms, devices, programs, kernels and events, and the values of answers and flags.
const (
	PlatformVersion    = 0x0901
	PlatformExtensions = 0x0904

	AllDevices = 0xFFFFFFFF
	DeviceCPU  = 1 << 1

	DeviceType              = 0x1000
	DeviceComputeUnits      = 0x1002
	DeviceWorkGroupSize     = 0x1004
	DeviceWorkItemSizes     = 0x1005
	DeviceMaxAllocation     = 0x1010
	DeviceMaxParameter      = 0x1017
	DeviceAddressAlign      = 0x1019
	DeviceGlobalMemory      = 0x101F
	DeviceLocalMemory       = 0x1023
	DeviceAvailable         = 0x1027
	DeviceSingleFloat       = 0x101B
	DeviceCompilerAvailable = 0x1028
	DeviceName              = 0x102B
	DeviceDriverVersion     = 0x102D
	DeviceVersion           = 0x102F
	DeviceExtensions        = 0x1030
	DeviceUnifiedMemory     = 0x1035
	DeviceVectorFloat       = 0x103A
	DeviceLanguageVersion   = 0x103D
	DeviceSVM               = 0x1053
	DeviceUUID              = 0x106A // cl_khr_device_uuid

	// of cl_khr_command_buffer
	DeviceCommands         = 0x12A9 // what command buffers can do
	DeviceCommandsQueue    = 0x12AA // the properties that their queues need
	CommandsSimultaneous   = 1 << 2 // one can be enqueued again before it's done
	CommandsFlags          = 0x1293
	CommandsSimultaneously = 1 << 0

	RoundedDivision = 1 << 7 // of DeviceSingleFloat: divisions and square roots may be correctly rounded

	SVMCoarse  = 1 << 0
	SVMBuffers = 1 << 1
	SVMSystem  = 1 << 2

	QueueProperties     = 0x1093
	QueueProfiling      = 1 << 1
	QueuePriority       = 0x1096 // cl_khr_priority_hints
	QueuePriorityHigh   = 1 << 0
	QueuePriorityMedium = 1 << 1

	MemReadWrite    = 1 << 0
	MemUseHostPtr   = 1 << 3
	MemAllocHostPtr = 1 << 4

	MemUsesSVM = 0x1109
	MemSVMFine = 1 << 10

	MapRead  = 1 << 0
	MapWrite = 1 << 1

	BufferRegion = 0x1220

	ProgramDevices     = 0x1163
	ProgramBinarySizes = 0x1165
	ProgramBinaries    = 0x1166
	ProgramKernelNames = 0x1168
	BuildLog           = 0x1183

	KernelNumArgs   = 0x1191
	KernelGroupSize = 0x11B0
	KernelLocal     = 0x11B2
	KernelPrivate   = 0x11B4
	ArgAddress      = 0x1196
	ArgTypeName     = 0x1198
	AddressGlobal   = 0x119B
	AddressLocal    = 0x119C
	AddressConstant = 0x119D
	AddressPrivate  = 0x119E
	EventStatus     = 0x11D3
	Complete        = 0
	ProfileQueued   = 0x1280
	ProfileStart    = 0x1282
	ProfileEnd      = 0x1283
	ContextPlatform = 0x1084
)
