// Package chorus is the root of a module for collective communication: tensors between goroutines, processes and hosts.
// The root itself holds no code. Begin with one of these packages:
//
//   - [github.com/chorus-comms/chorus/comm]: the communicator; all-reduce, all-gather, send, receive, windows and the
//     rest. Most programs import this one, dtype and tensor, and nothing else.
//   - [github.com/chorus-comms/chorus/tensor]: views of memory that communicators work on; a []float32 becomes one
//     without a copy.
//   - [github.com/chorus-comms/chorus/store] and [github.com/chorus-comms/chorus/bootstrap]: where ranks meet, for
//     programs that no launcher starts.
//   - [github.com/chorus-comms/chorus/launch] and [github.com/chorus-comms/chorus/observe]: starting ranks, and finding
//     out which of them is to blame, for programs that do themselves what the command does.
//   - [github.com/chorus-comms/chorus/plan]: collectives as data, to write an algorithm and have it proved.
//   - [github.com/chorus-comms/chorus/comm/backend], [github.com/chorus-comms/chorus/fabric] and
//     [github.com/chorus-comms/chorus/device]: the contracts of what plugs in from outside; comm/commtest,
//     fabric/fabrictest and device/devicetest are the suites that hold a plug-in to them.
//
// The command chorus, in cmd/chorus, starts the ranks of a job (chorus run), explains why one hangs (chorus explain),
// and measures (chorus bench). Programs to start from are in examples. The package for PyTorch is in python.
package chorus
