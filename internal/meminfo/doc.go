// Package meminfo says how much memory a host has.
//
//	free, total, err := meminfo.Read() // in bytes
package meminfo
