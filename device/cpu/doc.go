// Package cpu is the host as a device, so that programs written for devices run without one: streams, events and graphs
// in software over ordinary memory.
//
//	import _ "github.com/chorus-comms/chorus/device/cpu" // registers "cpu"
//
//	d, err := device.Get("cpu")
//
// Its memory is the host's ([device.Properties].HostAccess): blocks of package hostmem, which peers on the host can map.
package cpu
