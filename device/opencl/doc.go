// Package opencl is the driver of devices that OpenCL serves: GPUs of any vendor, accelerators, and processors, by PoCL
// for example. It opens the libraries when a device is first named, and never links them.
//
//	import _ "github.com/chorus-comms/chorus/device/opencl" // registers "opencl"
//
//	d, err := device.Get("opencl:0") // an error says which files were looked for, and what each said
//
// The libraries are the loader that the dynamic linker finds, with the drivers that it knows, and drivers that Python
// packages have brought.
//
// # How it works
//
//   - A stream is an in-order queue. The library orders the work of a queue, and events order queues.
//   - A point in a stream's order that something waits for is a marker's event (ticket).
//   - A function of the host runs on a goroutine when the marker before it has happened. The queue is held back by an
//     event that the function's end sets, so that functions may block.
//   - Memory is shared virtual memory, whose addresses kernels use directly. A device that has none has buffers, for
//     which reserved addresses stand.
//   - OpenCL has no captures: the driver records the work and enqueues it again at each launch.
//   - What a device can do is asked for, never assumed from its name or version.
//   - The library is asked again and again whether work is done, so that every wait has a deadline. On a processor a
//     goroutine of its own waits in the library as well, since that may run kernels on the threads that wait.
//   - Memory is freed when the streams have done what they had.
//
// Lock order: a stream's, an event's or an instantiated graph's, the captures', a device's, the tables'.
package opencl
