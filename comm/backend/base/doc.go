// Package base is what backends have in common, written once.
//
//   - [Life]: one rank's part of a communicator, from its beginning to its first failure or its end. A backend embeds
//     it, and has Abort, Broken and Cause.
//   - [Failure]: a typed error in a form that travels.
//   - [Job], [Description], [Scratch]: a collective as a request of package plan and two flat buffers, and what ranks
//     compare before they exchange data.
//   - [Refusal]: a call that never came, for the time-outs of the ranks that wait for it.
//   - [Transfers]: sends and receives, with tags and any source, over a [Link].
//   - [Offers]: what ranks tell each other in a split.
//   - [Windows]: one-sided windows over a Link, and over memory that other ranks reach where it lies.
//   - [Runner]: all of a backend, over a library that has messages, and perhaps a few collectives of its own.
//
// A backend over a library takes what its library lacks: examples/thirdparty/mybackend is a Runner, package comm/native
// has programs of its own.
//
// Invariants: the first cause of a failure counts, on every rank; an operation that fails of it returns when the others
// have been told; nothing here knows a backend or a fabric.
package base
