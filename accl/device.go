package accl

import (
	"context"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
)

// Device is an engine, as the driver reaches it. Its methods may be called from any goroutine.
type Device interface {
	// Read and Write reach the words of exchange memory.
	Read(addr uint32) (uint32, error)
	Write(addr, value uint32) error
	// Queue returns a new way to call the engine. Calls of one queue begin in order.
	Queue() Queue

	// Alloc gives the engine memory. bytes is that memory itself if the host can touch it, else nil: then ReadMemory and
	// WriteMemory copy.
	Alloc(n int, at MemoryKind) (addr uint64, bytes []byte, err error)
	// Map gives the engine memory that the caller has, as it gives it Alloc's; false if it can't reach that.
	Map(b []byte, at MemoryKind) (addr uint64, ok bool)
	// Free takes memory of Alloc or Map away. No call touches it any more when it returns.
	Free(addr uint64, at MemoryKind) error
	ReadMemory(addr uint64, at MemoryKind, into []byte) error
	WriteMemory(addr uint64, at MemoryKind, from []byte) error

	// Push gives the engine bytes of the kernel, and Pull waits for those of a stream to the kernel.
	Push(ctx context.Context, b []byte) error
	Pull(ctx context.Context, stream uint32, b []byte) error
	// Attach has a function take the data to the kernel, instead of Pull; the data of one rank to a stream comes in
	// order. The data is the function's until it returns, which is soon.
	Attach(kernel func(stream uint32, data []byte))

	Close() error
}

// MemoryKind is the memory of a buffer.
type MemoryKind struct {
	Host bool // in the host's memory
	Bank int  // of the device's
	P2P  bool // of the device's, where the host and other devices reach it
}

// Queue is a way to call an engine.
type Queue interface {
	Start(c abi.Call) (Handle, error)
}

// Waiting is a Queue whose caller may wait in the engine's place: Run is Start and the wait for the call's end, as
// engine.Controller has it.
type Waiting interface {
	Queue
	Run(c abi.Call, wait func(<-chan struct{}) error) (Handle, error)
}

// Handle is a call under way.
type Handle interface {
	Done() <-chan struct{}
	// Result returns what came out, when it's done: status and cycles.
	Result() (abi.Status, uint64, error)
	// Drop ends the call without its result. It is done soon; a device that can't drop one call drops all.
	Drop()
}

// InProcess returns the device of an engine in this process. All of its memory is the host's. Close closes the engine.
func InProcess(e *engine.Engine) Device { return inProcess{e} }

type inProcess struct{ engine *engine.Engine }

func (d inProcess) Read(addr uint32) (uint32, error) { return d.engine.Read(addr) }
func (d inProcess) Write(addr, value uint32) error   { return d.engine.Write(addr, value) }

func (d inProcess) Alloc(n int, at MemoryKind) (uint64, []byte, error) {
	b := engine.Alloc(n)
	return d.engine.Memory.Map(b, at.Host), b, nil
}

func (d inProcess) Map(b []byte, at MemoryKind) (uint64, bool) {
	return d.engine.Memory.Map(b, at.Host), true
}

func (d inProcess) Free(addr uint64, at MemoryKind) error {
	d.engine.Memory.Unmap(addr, at.Host)
	return nil
}

func (d inProcess) ReadMemory(addr uint64, at MemoryKind, into []byte) error {
	return d.engine.Memory.Read(addr, at.Host, into).Err()
}

func (d inProcess) WriteMemory(addr uint64, at MemoryKind, from []byte) error {
	return d.engine.Memory.Write(addr, at.Host, from).Err()
}

func (d inProcess) Push(_ context.Context, b []byte) error {
	d.engine.FromKernel().Push(b)
	return nil
}

func (d inProcess) Pull(ctx context.Context, stream uint32, b []byte) error {
	return d.engine.ToKernel(stream).Pull(ctx, b)
}

func (d inProcess) Attach(kernel func(stream uint32, data []byte)) { d.engine.AttachKernel(kernel) }

func (d inProcess) Close() error {
	d.engine.Close()
	return nil
}

func (d inProcess) Queue() Queue { return controller{d.engine.Controller()} }

type controller struct{ *engine.Controller }

func (c controller) Start(call abi.Call) (Handle, error) {
	return handle{c.Controller.Start(call)}, nil
}

func (c controller) Run(call abi.Call, wait func(<-chan struct{}) error) (Handle, error) {
	return handle{c.Controller.Run(call, wait)}, nil
}

type handle struct{ *engine.Call }

func (h handle) Result() (abi.Status, uint64, error) { return h.Wait(), h.Cycles(), nil }
