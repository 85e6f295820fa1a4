// Package abi is what Chorus knows of UCX's interface (libucp): its structs, its constants, and where the library is.
// It loads nothing, so that a program that only looks for UCX stays statically linked.
//
// The facts are from the headers of UCX 1.13: ucp/api/ucp.h, ucp/api/ucp_def.h, ucs/type/status.h and
// ucs/type/thread_mode.h. Later releases of UCX 1 keep them: a struct begins with a mask that says which of its fields
// are set, and new fields come at its end. A test compares them with the headers where those are installed.
package abi
