// Package driver is the contract between package device and the drivers of devices, as database/sql/driver is that of
// databases.
//
// A vendor writes a [Driver] (memory, copies, streams, events), with those of the small optional interfaces that the
// hardware can do, and registers it with package device under a name. They are [Graphs], [IPC], [IPCEvents], [Peers],
// [HostKernels], [CallerRuns], [Modules], [Compiler], [Speaker], [Elements], [Reserver], [Reclaimer], [Tracer],
// [Threads], [Foreign], [Closer] and [Mathematics]. Package devicetest tests it.
//
// A [Ptr] is a number. Only copies and kernels reach the memory that a device pointer refers to. Handles are numbers,
// too, and there is no current device: each call says which device or handle it is for.
package driver
