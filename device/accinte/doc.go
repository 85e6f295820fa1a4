// Package accinte is an emulated accelerator: devices whose memory, streams, events and graphs behave as a GPU's do, in
// any process, without hardware. It is the reference integration for authors of drivers, and what Chorus tests devices
// with.
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
// A device's memory is one sparse memory file, mapped twice. The mapping that device pointers point into is
// inaccessible, so that a host that touches device memory faults, at once and always. Copies and kernels use a second,
// private view ([device.HostKernels].View). The file is a segment of package hostmem, so that other processes can map
// it, by an IPC handle or through a communicator, and reach the very same bytes. The range of addresses is large, and
// addresses are reused late, so that a freed pointer stays an error for a long time. Memory is committed by the page
// when it is allocated, and given back when it is freed.
//
// # What it is not
//
// Kernels are Go functions, launched as such ([device.HostKernels]) or, as compiled kernels are, from a module
// ([device.Modules]) whose image is the name that [RegisterModule] was given; there is no instruction set. Times are
// those of this host. A failure belongs to a stream and those that wait for it, not to the whole device, and can be
// recovered from.
package accinte
