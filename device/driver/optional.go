package driver

import (
	"time"
	"unsafe"
)

// Closer is implemented by drivers that hold resources of the process which can be released.
type Closer interface {
	// Close ends the driver: what it still holds is released. Nothing may be called afterwards.
	Close() error
}

// HostKernels is implemented by drivers that run Go functions on the memory of their devices: emulated ones, and the
// host's.
type HostKernels interface {
	// Launch enqueues a kernel: f runs with the operands as memory that it can touch, in their order. Operands must lie
	// in host memory, or within an allocation of the stream's device or of a peer whose memory it has access to.
	// Function f runs on one of the device's Units and must not block. The slice is the driver's; it's valid until f
	// returns. An error that f returns, a panic or a fault is a failure of work.
	Launch(s StreamHandle, name string, operands []Span, f func(views []unsafe.Pointer) error) error

	// View returns an address by which engines of this process, kernels and communicators, can touch n bytes of device
	// memory. It's valid in this process alone, and must not be kept beyond the allocation's life.
	View(p Ptr, n int) (unsafe.Pointer, error)
}

// CallerRuns is implemented by drivers whose devices are the host's processors, so that a thread of the host can do a
// stream's next work itself, without handing it to another thread.
type CallerRuns interface {
	// StreamTryAcquire makes the caller's code until StreamRelease the stream's next work, if the stream has
	// none. No work of the stream runs meanwhile, and work that is enqueued comes after it. It never waits; false means
	// that the stream is busy or is being captured. name, which must not change until StreamRelease, is for traces. The
	// error is one that the stream carries.
	StreamTryAcquire(s StreamHandle, name string) (entered bool, err error)

	// StreamRelease ends it. It need not be called on the thread that acquired the stream.
	StreamRelease(s StreamHandle) error
	// StreamContinue is StreamRelease for a caller whose work an engine is to finish: rest is run as a host function,
	// before work that was enqueued meanwhile. An error of rest is the stream's error.
	StreamContinue(s StreamHandle, rest func() error) error
}

// Threads is implemented by drivers over a library that keeps a current device for each thread of the process, which
// other libraries of the vendor use, NCCL for example.
type Threads interface {
	// Bind makes a device the calling thread's current one. unbind, called on the same thread, restores the previous
	// one.
	Bind(dev int) (unbind func(), err error)
}

// Foreign is implemented by drivers over a library that other code in the process uses as well, and whose streams and
// memory it can use.
type Foreign interface {
	// StreamAdopt makes a stream of the library, which other code has created on a device, one of the driver's until
	// StreamAbandon. Both may be called several times.
	StreamAdopt(dev int, s StreamHandle) error
	StreamAbandon(s StreamHandle) error
}

// Span is a range of memory.
type Span struct {
	Ptr   Ptr
	Bytes int
}

// Graphs is implemented by drivers that can capture the work of streams and replay it.
//
// From CaptureBegin on, work on the stream becomes nodes of a graph instead of being run. A stream that waits for an
// event recorded in the capture joins it; before CaptureEnd on the first stream, that one must have waited, directly or
// through others, for all work of streams that joined. While a stream captures, synchronizing, querying or recovering
// it or its device, or querying events recorded in the capture, is ErrCapture and invalidates the capture: CaptureEnd
// then returns ErrCapture. So does waiting in it for an event recorded outside. An event recorded in a capture means
// nothing outside.
type Graphs interface {
	CaptureBegin(s StreamHandle) error
	CaptureEnd(s StreamHandle) (GraphHandle, error)
	CaptureStatus(s StreamHandle) (CaptureStatus, error)

	// GraphNodes describes the nodes in an order in which they may run.
	GraphNodes(g GraphHandle) ([]Node, error)
	GraphDestroy(g GraphHandle) error

	// Instantiate makes a graph ready to run. The graph may be destroyed afterwards.
	Instantiate(g GraphHandle) (ExecHandle, error)

	// GraphLaunch enqueues a run of all nodes. Runs of one ExecHandle never overlap, on whatever streams. Pointers are
	// checked again at each run. On a stream that captures, the nodes become a part of that graph.
	GraphLaunch(x ExecHandle, s StreamHandle) error

	// GraphUpdate gives x the arguments of g, which must have the same nodes (work, of the same kind) with the same
	// dependencies, else ErrInvalidArgument says what differs and x stays as it was. Runs enqueued before are not
	// affected.
	GraphUpdate(x ExecHandle, g GraphHandle) error

	// ExecDestroy makes the handle invalid; runs that are enqueued still happen.
	ExecDestroy(x ExecHandle) error
}

// CaptureStatus is what a stream's capture is at.
type CaptureStatus uint8

const (
	NotCapturing CaptureStatus = iota
	Capturing
	CaptureInvalidated // CaptureEnd is still to come and will fail
)

// Node describes a node of a graph.
type Node struct {
	Kind ActivityKind
	Name string
	Deps []int // positions of the nodes that it comes after
}

// IPC is implemented by drivers whose device memory other processes of the host can open.
type IPC interface {
	// IPCHandle describes the allocation that begins at p for other processes, as bytes that are good while the
	// allocation is. Memory opened from elsewhere can't be passed on: ErrInvalidArgument.
	IPCHandle(p Ptr) ([]byte, error)

	// IPCOpen makes an allocation of another process this process's too, as memory of device dev, until IPCClose. The
	// handle is not trusted. Opening one again is fine, and is closed as often.
	IPCOpen(dev int, handle []byte) (Ptr, error)
	IPCClose(p Ptr) error
}

// IPCEvents is implemented by drivers with events that other processes of the host can open. Each process can record
// such an event and wait for it; it stands for its last record by any of them. Records on several streams may happen in
// the order of the calls.
type IPCEvents interface {
	// IPCEventCreate makes an event of a device that keeps no time and that IPCEventHandle describes. It can't be recorded
	// in a capture, and only so many records of it can be under way, else ErrNotReady: 31 at least.
	IPCEventCreate(dev int) (EventHandle, error)

	// IPCEventHandle describes an event of IPCEventCreate, as bytes that are good while the event is. For others it is
	// ErrInvalidArgument, so that an event that was opened from elsewhere can't be passed on.
	IPCEventHandle(e EventHandle) ([]byte, error)

	// IPCEventOpen makes an event of another process this process's too, as one of device dev, until EventDestroy. The
	// handle is not trusted. Work that a process has recorded and not done when it ends has failed.
	IPCEventOpen(dev int, handle []byte) (EventHandle, error)
}

// Peers is implemented by drivers whose devices can touch each other's memory. Without access, copies between devices
// still work, by way of the host; kernels need it.
type Peers interface {
	PeerCapable(dev, peer int) (bool, error)
	PeerAccess(dev, peer int) (bool, error)
	SetPeerAccess(dev, peer int, enabled bool) error // ErrUnsupported if not capable
}

// Reserver is implemented by drivers that can reserve addresses and put memory behind them later.
type Reserver interface {
	// Granularity is the unit of Map and Unmap in bytes.
	Granularity(dev int) (int, error)

	// Reserve returns the start of bytes of addresses without memory. Release gives them back; nothing may be mapped.
	Reserve(dev int, bytes int) (Ptr, error)
	Release(p Ptr) error

	// Map puts memory behind a range of reserved addresses that has none; Unmap takes it away. Each mapped range counts
	// as an allocation for the bounds of copies, and ranges that touch count as one.
	Map(p Ptr, bytes int) error
	Unmap(p Ptr, bytes int) error
}

// Reclaimer is implemented by drivers whose Free keeps memory until the work that was enqueued before it is done.
type Reclaimer interface {
	// Reclaim waits until Malloc can give the memory of a device again that was freed before the call. It returns earlier
	// if none came back for half a minute, since work that is under way may wait for the caller.
	Reclaim(dev int)
}

// Tracer is implemented by drivers that can tell what their devices did, and when.
type Tracer interface {
	// TraceStart begins to keep activities, and TraceStop ends it and returns them by start time. Work that was enqueued
	// in between is included if it has ended. There is one trace at a time: starting twice is ErrInvalidArgument.
	TraceStart() error
	TraceStop() ([]Activity, error)

	// TracePush gives all work that is enqueued on s until the matching TracePop an external ID, for example of the
	// operation of a framework; the innermost counts.
	TracePush(s StreamHandle, external uint64) error
	TracePop(s StreamHandle) (external uint64, err error)
}

// ActivityKind says what kind of work an activity or a node of a graph is.
type ActivityKind uint8

const (
	ActivityKernel ActivityKind = iota
	ActivityCopy
	ActivityFill
	ActivityHost    // a host function
	ActivityWait    // a stream waiting for an event
	ActivityRecord  // an event recorded
	ActivityGraph   // the run of a graph, around its nodes
	ActivityRuntime // a call by the host, with the correlation of the work that it enqueued
)

var activityNames = [...]string{"kernel", "copy", "fill", "host function", "wait", "record", "graph", "runtime"}

func (k ActivityKind) String() string { return activityNames[k] }

// Activity is a piece of work that ran.
type Activity struct {
	Kind        ActivityKind
	Name        string
	Device      int
	Stream      StreamHandle
	Start, End  time.Time // monotonic
	Bytes       int       // of copies and fills
	Correlation uint64    // the same for the call of the host and the work that it enqueued
	External    uint64    // from TracePush; 0 if none
	Failed      bool
}
