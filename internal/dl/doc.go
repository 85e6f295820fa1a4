// Package dl opens shared libraries at run time, without cgo, and fills tables of functions from them.
//
// A [Source] says where a library may be. The functions that are needed of it are fields of a struct, whose tags name
// the symbols:
//
//	type nccl struct {
//		GetVersion     func(*int32) int32 `dl:"ncclGetVersion"`
//		AllReduce      dl.Func            `dl:"ncclAllReduce"`
//		WindowRegister dl.Func            `dl:"ncclCommWindowRegister" cap:"windows" since:"2.27"`
//	}
//
//	lib, err := dl.Source{Name: "NCCL", Candidates: []string{"libnccl.so.2"}}.Open()
//	var f nccl
//	caps, err := lib.Resolve(&f) // an error names the library, its version and the symbols that it lacks
//	if err := caps.Need("windows"); err != nil { // so does this one, and the first version that has them
//		...
//	}
//
// A field is a Go function, which converts its arguments (some hundred nanoseconds, some allocations), or a [Func] for
// frequent calls, which takes machine words (64 ns, no allocation). With [Direct], a Go function of some type becomes a
// call of a Func.
//
// Invariants:
//   - The symbol decides what a library can do, never its version, which is in error texts only.
//   - A library that was opened stays: what it started, threads for example, could not be stopped. The exception is one
//     that its user closes, because its exit handlers have to run.
//   - A program that imports this package is linked dynamically, without cgo too, so that programs that need to run
//     anywhere leave it out.
package dl
