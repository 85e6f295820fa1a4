// Package base is what backends have in common, written once.
//
//   - [Life]: one rank's part of a communicator, from its beginning to its first failure or its end. A backend embeds
//     it, and has Abort, Broken and Cause.
//   - [Failure]: a typed error in a form that travels.
//   - [Transfers]: sends and receives, with tags and any source, over a [Link].
//
// A backend over a library takes what its library lacks. examples/thirdparty/mybackend is one, package comm/native
// another.
//
// Invariants: the first cause of a failure counts, on every rank; an operation that fails of it returns when the others
// have been told; nothing here knows a backend or a fabric.
package base
