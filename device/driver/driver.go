package driver

import (
	"context"
	"fmt"
	"time"
)

// Ptr is an address in the address space that a driver's devices share with the host: of device memory, of pinned host
// memory, or of any other host memory. It is a number and not a Go pointer: it keeps nothing alive and can't be
// followed. The zero Ptr is null.
type Ptr uintptr

// Add returns the address n bytes further on.
func (p Ptr) Add(n int) Ptr { return Ptr(uintptr(p) + uintptr(n)) }

func (p Ptr) String() string { return fmt.Sprintf("%#x", uintptr(p)) }

// Handles name what a driver made. Zero is never valid. A driver should not reuse the handle of something destroyed
// soon, so that a late use is an error.
type (
	StreamHandle   uintptr
	EventHandle    uintptr
	GraphHandle    uintptr
	ExecHandle     uintptr // an instantiated graph
	ModuleHandle   uintptr
	FunctionHandle uintptr // of a module
)

// MemoryType says what memory is to a driver.
type MemoryType uint8

const (
	Unmanaged    MemoryType = iota // the driver doesn't know it: ordinary host memory, Go's for example
	HostMemory                     // pinned host memory, from MallocHost
	DeviceMemory                   // on a device
)

func (m MemoryType) String() string {
	switch m {
	case Unmanaged:
		return "unmanaged"
	case HostMemory:
		return "host"
	case DeviceMemory:
		return "device"
	}
	return fmt.Sprintf("MemoryType(%d)", m)
}

// CopyKind says between what a copy goes. A driver checks that both sides are that.
type CopyKind uint8

const (
	HostToHost CopyKind = iota
	HostToDevice
	DeviceToHost
	DeviceToDevice
	CopyDefault // as the pointers say
)

func (k CopyKind) String() string {
	switch k {
	case HostToHost:
		return "host to host"
	case HostToDevice:
		return "host to device"
	case DeviceToHost:
		return "device to host"
	case DeviceToDevice:
		return "device to device"
	case CopyDefault:
		return "default"
	}
	return fmt.Sprintf("CopyKind(%d)", k)
}

// Attributes is what a driver knows of a pointer.
type Attributes struct {
	Type   MemoryType
	Device int // -1 unless Type is DeviceMemory
	Base   Ptr // of the allocation; the pointer itself if unmanaged
	Bytes  int // of the allocation, as usable; 0 if unmanaged
	Remote bool
}

// Properties describes a device.
type Properties struct {
	Name           string // of the model
	Library        string // that drives it, with its version, such as "CUDA 13.0"; empty: the driver is its own
	TotalMemory    int64  // bytes
	Units          int    // what runs at once: kernels of an emulated device, multiprocessors of a GPU
	PriorityLevels int    // at least 1; see [Driver].StreamCreate
	HostAccess     bool   // host code may touch its memory directly, as it may a CPU's
	Processor      bool   // its kernels run on cores of a processor, a block on one core
	Lanes          int    // float32 of a vector of such a core; 0: unknown
	LocalMemory    int    // bytes of local memory that a block can have; 0: unknown
	MostBlocks     Dim    // of a launch in each dimension; 0: 2^31-1
	MostThreads    int    // of a launch in each dimension, all blocks together; 0: as many as the blocks have
	ArgumentBytes  int    // that a launch can have; 0: unknown
	Offsets        bool   // a pointer among them takes 16 bytes: a buffer and an offset
	CopiesWait     bool   // Copy waits for the stream's earlier work between a device and memory that isn't pinned
	Major, Minor   int    // the compute capability of CUDA and HIP, the version of OpenCL; 0, 0: there is none
	Architecture   string // of an AMD GPU, as its compiler names it, "gfx90a"; empty: unknown
	UUID           [16]byte
}

// Driver is what the vendor of an accelerator writes. Devices are numbered from 0; every call says which one it is for,
// directly or by a handle or pointer, so that there is no current device.
//
// A call refuses bad arguments before it does anything, with an [*Error] of the kind that fits. A later failure, in
// enqueued work, follows the rules of errors of work: see StreamSynchronize.
//
// All methods are safe for concurrent use. Package devicetest checks these rules.
type Driver interface {
	// DeviceCount is the number of devices. It does not change. An error means that it can't be found out.
	DeviceCount() (int, error)

	// Properties describes a device. An index out of range is ErrWrongDevice, here and in every call.
	Properties(dev int) (Properties, error)

	Memory
	Streams
	Events

	// Synchronize waits until all work enqueued on the device so far is done, on all its streams and on no other
	// device's. It returns an error that one of the streams carries, if one does.
	Synchronize(ctx context.Context, dev int) error
}

// Memory is the part of a [Driver] about memory.
type Memory interface {
	// Malloc allocates device memory, aligned to 256 bytes at least, with undefined contents. bytes must be positive.
	// Lack of memory is ErrOutOfMemory and leaves everything as it was; see [Reclaimer] for memory that was freed.
	Malloc(dev int, bytes int) (Ptr, error)

	// Free returns memory of Malloc. p must be what Malloc returned and not have been freed; freeing null does nothing.
	// Copies and kernels enqueued before still use the memory: the driver waits for them, or keeps it until they have run.
	Free(dev int, p Ptr) error

	// MallocHost allocates pinned host memory: any code may touch it, and asynchronous copies to and from it need no
	// detour. FreeHost returns it, with the rules of Free. Pinned memory is as good for one device as for another.
	MallocHost(bytes int) (Ptr, error)
	FreeHost(p Ptr) error

	// MemInfo returns the bytes that Malloc could still give, if they were asked for suitably, and all there are.
	MemInfo(dev int) (free, total int64, err error)

	// Attributes tells what p points to, anywhere within an allocation. Unknown memory is Unmanaged, which is no error;
	// null is ErrInvalidPointer.
	Attributes(p Ptr) (Attributes, error)

	// Copy enqueues a copy of bytes from src to dst. The ranges must not overlap, and must lie within one allocation
	// each unless unmanaged: ErrOutOfBounds. Pointers that don't fit the kind are ErrWrongKind. bytes must be positive.
	// Copies between devices always work. Host memory must stay valid, and must not be written, until the copy is done.
	Copy(s StreamHandle, dst, src Ptr, bytes int, kind CopyKind) error

	// Fill enqueues setting bytes of memory of the stream's device to value.
	Fill(s StreamHandle, dst Ptr, value byte, bytes int) error
}

// Streams is the part of a [Driver] about streams: queues of work that runs in order.
type Streams interface {
	// StreamCreate makes a stream. priority is a level from 0, the ordinary one, to Properties.PriorityLevels-1, the
	// most urgent.
	StreamCreate(dev int, priority int) (StreamHandle, error)

	// StreamDestroy lets the work that the stream has run to its end, without waiting for it; the handle is invalid at
	// once.
	StreamDestroy(s StreamHandle) error

	// StreamQuery reports whether all work of the stream is done, what runs at the moment included. The error is one
	// that the stream carries.
	StreamQuery(s StreamHandle) (done bool, err error)

	// StreamSynchronize waits until all work enqueued so far is done. If work failed, it returns the [*WorkError] then
	// and from then on: it is the stream's until StreamRecover. Work behind the failure is left out, except that events
	// are recorded (carrying the error) and nothing waits forever. A context that ends first is ErrTimeout, saying what
	// the stream is at; the work goes on.
	StreamSynchronize(ctx context.Context, s StreamHandle) error

	// StreamRecover waits as StreamSynchronize does, and takes the error that the stream carries from it, so that work
	// enqueued from now on runs. It returns that error, nil if there was none. A driver whose devices can't recover
	// returns ErrUnsupported.
	StreamRecover(ctx context.Context, s StreamHandle) error

	// StreamWaitEvent makes work enqueued on s from now on wait for what e stands for at the time of this call: its
	// last record, on any stream of any device of the driver. Recording e anew later changes nothing for s. If e was
	// never recorded there is nothing to wait for. If the recorded work failed, s carries the error from then on.
	StreamWaitEvent(s StreamHandle, e EventHandle) error

	// HostFunc enqueues a function of the host. Work behind it waits until it returns; if it returns an error, or
	// panics, that is a failure of work. It may block, and holds up no other stream; it must not wait for its own
	// stream. name stands for it in errors and profiles.
	HostFunc(s StreamHandle, name string, f func() error) error
}

// Events is the part of a [Driver] about events: points in the order of a stream.
type Events interface {
	// EventCreate makes an event of a device, which may keep the time of its record.
	EventCreate(dev int, timing bool) (EventHandle, error)

	// EventDestroy makes the handle invalid. Waits for the event that are under way or enqueued still end as they would
	// have.
	EventDestroy(e EventHandle) error

	// EventRecord lets e stand for all work of s enqueued so far. s must be of e's device, else ErrWrongDevice.
	EventRecord(e EventHandle, s StreamHandle) error

	// EventQuery reports whether the work that e stands for is done; a new event stands for none. The error is that of the
	// work.
	EventQuery(e EventHandle) (done bool, err error)

	// EventSynchronize waits for it, as StreamSynchronize does.
	EventSynchronize(ctx context.Context, e EventHandle) error

	// EventElapsed is the time from start to end, which must be of one device, made with timing (else
	// ErrInvalidArgument) and recorded (likewise), and done (else ErrNotReady).
	EventElapsed(start, end EventHandle) (time.Duration, error)
}
