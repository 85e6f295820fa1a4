package abi

import (
	"reflect"
	"strconv"
	"unsafe"
)

// Signatures that several functions share. Sizes in bytes and addresses are words; ret points to a size or a result.
type (
	Release[T any] = func(x T) Result
	Asking[T any]  = func(of T, what uint32, n uintptr, value unsafe.Pointer, ret *uintptr) Result
	Of[T, U any]   = func(of T, about U, what uint32, n uintptr, value unsafe.Pointer, ret *uintptr) Result
	Waiting        = func(q Queue, n uint32, events *Event, made *Event) Result
	CopyingBuffer  = func(q Queue, src, dst Mem, srcAt, dstAt, n uintptr, waits uint32, events, made *Event) Result
	MovingBuffer   = func(q Queue, m Mem, wait uint32, at, n, host uintptr, waits uint32, events, made *Event) Result
	FillingBuffer  = func(q Queue, m Mem, pattern *byte, each, at, n uintptr, waits uint32, events, made *Event) Result
	Mapping        = func(q Queue, m Mem, wait uint32, flags uint64, at, n uintptr, waits uint32, events, made *Event,
		ret *Result) uintptr
	Unmapping     = func(q Queue, m Mem, at uintptr, waits uint32, events, made *Event) Result
	CopyingShared = func(q Queue, wait uint32, dst, src, n uintptr, waits uint32, events, made *Event) Result
	FillingShared = func(q Queue, at uintptr, pattern *byte, each, n uintptr, waits uint32, events, made *Event) Result
	Running       = func(q Queue, k Kernel, dims uint32, offset, global, local *uintptr, waits uint32,
		events, made *Event) Result
	SettingArgument = func(k Kernel, i uint32, n uintptr, value unsafe.Pointer) Result
	SettingPointer  = func(k Kernel, i uint32, p uintptr) Result
	Building        = func(p Program, n uint32, devices *Device, options *byte, done, arg uintptr) Result
)

// Signatures of one function each.
type (
	ListingPlatforms = func(n uint32, ids *Platform, count *uint32) Result
	ListingDevices   = func(p Platform, kind uint64, n uint32, ids *Device, count *uint32) Result
	MakingContext    = func(props *uintptr, n uint32, ids *Device, f, arg uintptr, ret *Result) Context
	MakingQueueOld   = func(c Context, d Device, props uint64, ret *Result) Queue
	MakingQueue      = func(c Context, d Device, props *uint64, ret *Result) Queue
	MakingBuffer     = func(c Context, flags uint64, n, host uintptr, ret *Result) Mem
	MakingPart       = func(m Mem, flags uint64, kind uint32, region *[2]uintptr, ret *Result) Mem
	Allocating       = func(c Context, flags uint64, n uintptr, align uint32) uintptr
	Freeing          = func(c Context, p uintptr)
	CallingBack      = func(e Event, status Result, f, arg uintptr) Result
	MakingEvent      = func(c Context, ret *Result) Event
	Awaiting         = func(n uint32, events *Event) Result
	SettingEvent     = func(e Event, status Result) Result
	FromSource       = func(c Context, n uint32, texts **byte, lengths *uintptr, ret *Result) Program
	FromBinary       = func(c Context, n uint32, ids *Device, lengths *uintptr, images **byte, each,
		ret *Result) Program
	MakingKernel = func(p Program, name *byte, ret *Result) Kernel
	LookingUp    = func(p Platform, name *byte) uintptr
)

// Table is a library's functions. The tags are those of package internal/dl; icd is a function's place in the table
// that every object of a driver begins with, by which a driver is used that no loader has found.
type Table struct {
	PlatformIDs  ListingPlatforms `dl:"clGetPlatformIDs" icd:"0"`
	PlatformInfo Asking[Platform] `dl:"clGetPlatformInfo" icd:"1"`
	DeviceIDs    ListingDevices   `dl:"clGetDeviceIDs" icd:"2"`
	DeviceInfo   Asking[Device]   `dl:"clGetDeviceInfo" icd:"3"`
	ContextMake  MakingContext    `dl:"clCreateContext" icd:"4"`
	ContextFree  Release[Context] `dl:"clReleaseContext" icd:"7"`

	QueueMakeOld MakingQueueOld `dl:"clCreateCommandQueue" icd:"9"`
	QueueMake    MakingQueue    `dl:"clCreateCommandQueueWithProperties" icd:"123" cap:"queues with properties" since:"2.0"`
	QueueFree    Release[Queue] `dl:"clReleaseCommandQueue" icd:"11"`
	Flush        Release[Queue] `dl:"clFlush" icd:"46"`

	BufferMake  MakingBuffer  `dl:"clCreateBuffer" icd:"14"`
	BufferPart  MakingPart    `dl:"clCreateSubBuffer" icd:"82"`
	BufferFree  Release[Mem]  `dl:"clReleaseMemObject" icd:"18"`
	BufferInfo  Asking[Mem]   `dl:"clGetMemObjectInfo" icd:"20"`
	BufferRead  MovingBuffer  `dl:"clEnqueueReadBuffer" icd:"48"`
	BufferWrite MovingBuffer  `dl:"clEnqueueWriteBuffer" icd:"49"`
	BufferCopy  CopyingBuffer `dl:"clEnqueueCopyBuffer" icd:"50"`
	BufferFill  FillingBuffer `dl:"clEnqueueFillBuffer" icd:"102"`
	BufferMap   Mapping       `dl:"clEnqueueMapBuffer" icd:"56"`
	BufferUnmap Unmapping     `dl:"clEnqueueUnmapMemObject" icd:"58"`

	SVMAlloc   Allocating     `dl:"clSVMAlloc" icd:"126" cap:"shared virtual memory" since:"2.0"`
	SVMFree    Freeing        `dl:"clSVMFree" icd:"127" cap:"shared virtual memory"`
	SVMCopy    CopyingShared  `dl:"clEnqueueSVMMemcpy" icd:"129" cap:"shared virtual memory"`
	SVMFill    FillingShared  `dl:"clEnqueueSVMMemFill" icd:"130" cap:"shared virtual memory"`
	SVMPointer SettingPointer `dl:"clSetKernelArgSVMPointer" icd:"134" cap:"shared virtual memory"`

	Extension LookingUp `dl:"clGetExtensionFunctionAddressForPlatform" icd:"107" cap:"extensions" since:"1.2"`

	Marker      Waiting        `dl:"clEnqueueMarkerWithWaitList" icd:"105"`
	Barrier     Waiting        `dl:"clEnqueueBarrierWithWaitList" icd:"106"`
	EventInfo   Asking[Event]  `dl:"clGetEventInfo" icd:"42"`
	EventWait   Awaiting       `dl:"clWaitForEvents" icd:"41"`
	EventTime   Asking[Event]  `dl:"clGetEventProfilingInfo" icd:"45"`
	EventFree   Release[Event] `dl:"clReleaseEvent" icd:"44"`
	EventRetain Release[Event] `dl:"clRetainEvent" icd:"43"`
	EventCall   CallingBack    `dl:"clSetEventCallback" icd:"81"`
	EventMake   MakingEvent    `dl:"clCreateUserEvent" icd:"84"`
	EventSet    SettingEvent   `dl:"clSetUserEventStatus" icd:"85"`

	ProgramFromSource FromSource          `dl:"clCreateProgramWithSource" icd:"26"`
	ProgramFromBinary FromBinary          `dl:"clCreateProgramWithBinary" icd:"27"`
	ProgramBuild      Building            `dl:"clBuildProgram" icd:"30"`
	ProgramInfo       Asking[Program]     `dl:"clGetProgramInfo" icd:"32"`
	ProgramBuildInfo  Of[Program, Device] `dl:"clGetProgramBuildInfo" icd:"33"`
	ProgramFree       Release[Program]    `dl:"clReleaseProgram" icd:"29"`

	KernelMake      MakingKernel       `dl:"clCreateKernel" icd:"34"`
	KernelFree      Release[Kernel]    `dl:"clReleaseKernel" icd:"37"`
	KernelArgument  SettingArgument    `dl:"clSetKernelArg" icd:"38"`
	KernelInfo      Asking[Kernel]     `dl:"clGetKernelInfo" icd:"39"`
	KernelGroupInfo Of[Kernel, Device] `dl:"clGetKernelWorkGroupInfo" icd:"40"`
	KernelArgInfo   Of[Kernel, uint32] `dl:"clGetKernelArgInfo" icd:"101"`
	KernelRun       Running            `dl:"clEnqueueNDRangeKernel" icd:"59"`
}

// Slots are the places of the table's functions in that of a driver.
func Slots() map[string]int {
	slots := map[string]int{}
	for _, f := range fields() {
		n, err := strconv.Atoi(f.Tag.Get("icd"))
		if err != nil {
			panic(err) // the table is wrong, which a test notices
		}
		slots[f.Tag.Get("dl")] = n
	}
	return slots
}

// fields are the table's.
func fields() (all []reflect.StructField) {
	t := reflect.TypeFor[Table]()
	for i := range t.NumField() {
		all = append(all, t.Field(i))
	}
	return all
}

// Names are where a library may be, in the order in which that's tried: a loader, which knows the machine's drivers.
var Names = []string{"libOpenCL.so.1", "libOpenCL.so"}

// Wheels are drivers within a folder of Python packages, each of which is used beside the loader's.
var Wheels = []string{"pyopencl/.libs/libpocl*.so*", "../../libintelocl.so"}
