// Package observe tells afterwards what the ranks of a job did, and which rank is to blame.
//
// Each communicator has a [Recorder], a ring of its last operations. The communicators of a rank make up its [Dump],
// which is written at the rank's first failure, at SIGUSR1, and on request:
//
//	files, err := observe.DumpAll("dumps") // of all ranks of this process, whatever they are doing
//
// [Explain] puts the dumps of all ranks side by side:
//
//	dumps, err := observe.ReadDir("dumps", 256)
//	report := observe.Explain(dumps)
//	fmt.Print(report) // 1. missing: rank 2 is missing from all_reduce(float32[8], sum) #12 of "world" ...
//
// Package comm makes the recorders. A program needs this package only for dumps on request, and to read dumps.
//
// # Invariants
//
//   - Recording takes no lock, allocates nothing, and looks at the clock once for a small synchronous operation (twice
//     for one in eight). The clock is the processor's counter where it runs at one rate; the call site is five return
//     addresses, found along the frame pointers.
//   - A synchronous collective that repeats the one before it, from the same place, is a line of 32 bytes that refers
//     to the other's description, and its good end is a count: readers combine the two.
//   - Dumping takes no lock that an operation holds. An entry that is overwritten while it's read is left out, never
//     mixed.
//   - A collective's Begin, Start and End are called by the owner of the communicator's lane, so that its numbers need
//     no lock; an operation that is queued, or a message, may be begun by anybody.
//   - A dump is PyTorch's structure with members named chorus, and is written whole or not at all.
//   - What is read from a file is checked before it's used.
package observe
