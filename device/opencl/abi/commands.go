package abi

// Signatures of functions about command buffers.
type (
	MakingCommands  = func(n uint32, q *Queue, props *uint64, ret *Result) Commands
	RecordingKernel = func(c Commands, q Queue, props *uint64, k Kernel, dims uint32, offset, global, local *uintptr,
		waits uint32, points, point *uint32, mutable *uintptr) Result
	RunningCommands = func(n uint32, q *Queue, c Commands, waits uint32, events, made *Event) Result
)

// CommandTable is those functions of the extension cl_khr_command_buffer that record kernels and run them. The extension
// is provisional; these functions have had the same parameters since its first revision, 0.9.0.
type CommandTable struct {
	Make     MakingCommands    `dl:"clCreateCommandBufferKHR"`
	Kernel   RecordingKernel   `dl:"clCommandNDRangeKernelKHR"`
	Finalize Release[Commands] `dl:"clFinalizeCommandBufferKHR"`
	Run      RunningCommands   `dl:"clEnqueueCommandBufferKHR"`
	Free     Release[Commands] `dl:"clReleaseCommandBufferKHR"`
}
