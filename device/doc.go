// Package device is what an accelerator is to Chorus: what its vendor provides, and everything that it then gets for
// free.
//
// The vendor writes a driver, whose contract is package driver, and registers it under a name. Package devicetest tests
// it. The rest is here and shared by all drivers: devices, streams from pools, events, the caching allocator,
// generators, the current device and stream, pinned memory, profiles.
//
//	import _ "github.com/chorus-comms/chorus/device/accinte" // registers itself; loaded when first named
//
//	d, err := device.Get("accinte:1")
//	s, err := d.Stream(device.Normal)     // from the device's pool
//	p, err := d.Alloc(1<<20, s)           // a device.Ptr: not a Go pointer, and no Go code can read through it
//	err = s.CopyIn(ctx, p, data)          // in the stream's order, host to device
//	err = s.Record(&e)                    // e is an event behind the copy
//	err = other.Wait(&e)                  // other's later work comes after it
//	err = s.Synchronize(ctx)              // the host waits, and learns of errors of the work
//	ctx = device.WithStream(ctx, s)       // calls with this ctx use s as the current stream
//
// # Invariants
//
//   - A [Ptr] is a number. What a device pointer refers to is reached by copies and kernels only; the functions here
//     that give host memory out refuse device memory with [ErrHostAccess].
//   - There is no current device or stream but in a [context.Context] ([WithDevice], [WithStream]): goroutines have no
//     state of their own. Nothing has to be restored when a scope ends.
//   - Work on one stream runs in the order of its calls. Between streams only events, and waits of the host, order.
//   - An error in a call's arguments is returned by the call, before anything happens, and leaves the device as it was.
//     An error of work that a call enqueued is a [*WorkError] of the stream: later work of the stream is left out,
//     waiting for one of its events passes the error on, and every synchronization returns it until [Stream.Recover].
//   - Whatever waits takes a context. A wait that the context ends leaves the work alone and says what the stream is
//     at.
//   - Every function is safe for concurrent use. A stream's order is then the order in which its calls happen to come.
//
// The package knows nothing of tensors or communicators, which stand above it.
package device
