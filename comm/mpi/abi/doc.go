// Package abi is how programs and libraries of MPI call each other. There are three binary interfaces. A library has
// one of them.
//
//	for _, found := range abi.Find("") { // the libraries of this machine, which aren't loaded
//
// Package mpi opens a library and calls it. Values of handles are held to the headers of MPI in the tests.
package abi
