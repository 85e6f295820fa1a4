// Package gpu is the driver of NVIDIA's and AMD's GPUs, over the libraries that come with their own drivers: CUDA's
// (libcuda.so.1) and HIP's (libamdhip64.so), which it opens when a device is first named, and never links.
//
//	import _ "github.com/chorus-comms/chorus/device/gpu" // registers "cuda" and "hip"
//
//	d, err := device.Get("cuda:0") // an error says which files were looked for, and what each said
//
// One driver is written against one table of functions ([abi.Table]). Both libraries fill it, and so does a stand-in in
// Go, which tests use: docs/gpu.md says which tests have run where. [Supply] makes a driver of such a table.
//
// # How it works
//
//   - Streams are the library's: a [device.StreamHandle] is a CUstream or hipStream_t, which NCCL takes and which
//     other code may have made (see [Driver.StreamAdopt]). The library orders the work; nothing is queued here.
//   - A call of the library happens on a thread for which the device is the current one meanwhile; what was current
//     before is so again, for other users of the library in this process. Launches of CUDA's kernels need that no more:
//     from 12.0 on they are of no context, and take the stream's.
//   - A function of the host is started by the library's call back, which only wakes a goroutine; the stream is held
//     back by a wait for a word in pinned memory, which that writes in the end. So functions may block. Where the
//     library can't wait so, its call back lasts as long as the function, and holds up other functions.
//   - Streams carry errors of functions here (package outcome), and functions behind an error are left out; so are
//     copies, fills and kernels that are enqueued after it's known. What a GPU has been given before runs.
//   - A module's source is compiled by NVRTC or hiprtc, which are opened when the first one comes.
//   - An error of the GPU itself ends the device for this process: every call has it from then on.
//   - Nothing here waits in the library: it's asked again and again, so that every wait has a deadline; and memory is
//     freed when the streams have done what they had, since the library waits for all of them where it's asked before.
//
// Lock order: a stream's, an event's, a GPU's, the tables'.
package gpu
