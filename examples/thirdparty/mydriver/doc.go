// Package mydriver is a device driver written outside of Chorus: two devices in software. Their memory is Go's, at
// addresses that the host can't touch. Their streams are goroutines, which end when they have no work.
//
//	import _ "example.com/thirdparty/mydriver"
//
//	dev, err := device.Get("mine:1")
//
// A vendor's driver has calls of a library where this one has Go. memory.go has allocations, copies and fills,
// stream.go streams and errors of work, event.go events, and driver.go the list of devices and kernels. Kernels are Go
// functions, so that communicators can touch the devices' memory.
//
// Invariants: what a call refuses it refuses before anything is enqueued; work holds the memory that it uses, so that
// Free needs to wait for none; no lock is held while work runs.
package mydriver
