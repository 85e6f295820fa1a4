// Package base is what drivers share. One over a library keeps the calls of that. Here is what handles stand for,
// allocations by their addresses, the checks of calls, peers, and what is given back after work.
//
// A driver embeds [Devices] in itself, [Device] in its devices, [Allocation] in its allocations, and [Stream] or [Life]
// in what has a handle.
package base
