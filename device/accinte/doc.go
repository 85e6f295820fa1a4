// Package accinte is an emulated accelerator: devices whose memory, streams, events and graphs behave as a GPU's do, in
// any process, without hardware. It is the reference integration for those who write a driver, and what Chorus tests
// devices with.
//
//	import _ "github.com/chorus-comms/chorus/device/accinte" // registers "accinte"
//
//	d, err := device.Get("accinte:0")
//
// The number of devices, the memory of each and whether they can touch each other's are CHORUS_ACCINTE_DEVICES,
// CHORUS_ACCINTE_MEMORY and CHORUS_ACCINTE_PEERS, or [Options] for a driver made by [New].
//
// # Memory
//
// A device's memory is one sparse memory file, mapped twice: where device pointers point, nothing can be read or
// written, so that a host that touches device memory faults, at once and always; what copies and kernels use is a
// second, private view ([device.HostKernels].View). The file is a segment of package hostmem, so that other processes
// can map it, by an IPC handle or through a communicator, and reach the very same bytes. Addresses are plenty and are
// used again late, so that a freed pointer stays an error for a long time; memory is committed by the page when it is
// allocated and given back when it is freed.
//
// # What it is not
//
// Kernels are Go functions, launched as such ([device.HostKernels]) or, as compiled kernels are, from a module
// ([device.Modules]) whose image is the name that [RegisterModule] was given; there is no instruction set. Times are
// those of this host. A failure belongs to a stream and those that wait for it, not to the whole device, and can be
// recovered from.
package accinte
