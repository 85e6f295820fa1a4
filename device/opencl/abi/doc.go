// Package abi is what an OpenCL library looks like: its functions, constants, and where such libraries are.
//
//	var t abi.Table
//	caps, err := library.Resolve(&t)
//	r := t.DeviceIDs(platform, abi.AllDevices, n, &ids[0], nil)
//
// Names and values are those of CL/cl.h (3.0), and the slots of the tables that drivers have are those of CL/cl_icd.h;
// a test compares them with the headers where there are any. The package loads nothing and links nothing.
package abi
