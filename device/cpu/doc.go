// Package cpu is the host as a device, so that programs written for devices run without one: streams, events and graphs
// in software over ordinary memory.
//
//	d := cpu.Device() // device.Get("cpu") is the same, and so is where tensors of the host are
//
// Its memory is the host's ([device.Properties].HostAccess): blocks of package hostmem, which peers on the host can
// map.
package cpu
