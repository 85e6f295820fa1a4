// Package abi is the binary interface of NCCL, NCCLX and RCCL: their functions as a table, their types and constants,
// the layout of each version's configurations, and where on a machine the libraries are.
//
//	for _, f := range abi.FamilyNamed("nccl").Find("") { // without loading them
//		fmt.Println(f.Path, f.Version, f.Has, f.Lacks)
//	}
//
// It loads nothing: package comm/nccl fills the table from a library, and a stand-in for tests fills it with Go.
//
// Invariants: A field of [Table] has a capability if some version that Chorus works with lacks the function. The
// symbol decides whether it's there, never the version; since is the first release that has it.
package abi
