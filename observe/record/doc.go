// Package record writes down what the ranks of a job do, for package observe to read.
//
// Each communicator has a [Recorder], a ring of its last operations. The communicators of a rank make up its [Dump],
// which is written at the rank's first failure, at SIGUSR1, and on request:
//
//	files, err := record.DumpAll("dumps") // of all ranks of this process, whatever they are doing
//
// A rank with a directory for dumps also answers there, at a unix socket, what it does now ([Live]).
//
// Package comm makes the recorders. A program needs this package only for dumps on request.
//
// # Invariants
//
//   - Recording takes no lock, allocates nothing, and looks at the clock once for a small synchronous operation (twice
//     for one in eight). The clock is the processor's counter where it runs at one rate; the call site is five return
//     addresses, found along the frame pointers.
//   - A synchronous collective that repeats the one before it, from the same place, is a line of 32 bytes that refers
//     to the other's description, and its good end is a count: readers combine the two.
//   - Dumping takes no lock that an operation holds. Owners store the word that says that an operation has gone on
//     after all words that belong to it, and readers load it before them: an entry is one state of its operation. One
//     that is overwritten while it's read is left out, never mixed.
//   - A collective's Begin, Start and End are called by the owner of the communicator's lane, so that its numbers need
//     no lock; an operation that is queued, or a message, may be begun by any goroutine.
//   - A dump is PyTorch's structure with members named chorus, and is written whole or not at all.
package record
