// Package mpi is the backend whose operations are those of the site's MPI library: the way onto machines whose network
// only the vendor's MPI knows.
//
//	import _ "github.com/chorus-comms/chorus/comm/mpi"
//
//	c, err := comm.New(ctx, comm.WithBackend("mpi")) // under mpirun, mpiexec or srun
//
// The library is opened at run time. Package abi has the three binary interfaces that there are. A link is the
// library's messages as a fabric, of which base.Runner makes a backend. Its collectives are those of the library where
// it has them (own.go), and plans over messages elsewhere. docs/mpi.md has the table.
//
// Invariants:
//   - The state of links, and the library, are touched within library.exec alone: one call at a time, on a thread
//     that the library permits.
//   - No call blocks, except those that start and end MPI or make a communicator. Each of them has a deadline.
//   - MPI ends with the last communicator of this process, if this package has started it.
package mpi
