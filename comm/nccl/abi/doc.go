// Package abi is the binary interface of NCCL, and of the libraries that have it too, NCCLX and RCCL: their functions
// as a table, their types and constants, what a version packs into its configurations, and where on a machine the
// libraries are.
//
//	for _, f := range abi.FamilyNamed("nccl").Find("") { // without loading them
//		fmt.Println(f.Path, f.Version, f.Has, f.Lacks)
//	}
//
// It loads nothing: package comm/nccl fills the table from a library, and a stand-in for tests fills it with Go.
//
// Invariants: a field of [Table] with a capability is one that some version that Chorus works with lacks, and whether
// it's there is the symbol's to say, never a version's; since is the first release that has it.
package abi
