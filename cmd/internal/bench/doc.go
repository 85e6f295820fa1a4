// Package bench measures the operations of a communicator, and checks what they
// compute.
//
// All ranks of a communicator call Run; it returns the same rows on each:
//
//	res, err := bench.Run(ctx, c, bench.Config{Operation: "all_reduce", Min: 8, Max: 256 << 20})
//	res.WriteTable(os.Stdout)   // or WriteJSON, WriteCSV, WritePlot
//
// Sizes, bandwidths and their factors are those of nccl-tests: the size of an operation that moves one block per rank
// is that of all its blocks together. The bandwidth (algbw) is size by time. The bus bandwidth (busbw) is algbw times a
// factor, which makes it the bandwidth that the links of an ideal machine would have to carry.
//
// # What a row means
//
// Rounds run back to back, without anything between them. Short ones are
// timed in blocks, so that the clock costs nothing; the median and the 99th percentile are
// those of the blocks' mean times, and the row states the slowest rank's. With
// Refill every rank writes its input anew before each round, as a program that computes
// gradients does, and then a barrier precedes the clock.
//
// Before and after the timed rounds the operation runs on known values, and every
// element of every output is compared with what it must be: Errors counts those
// that differ, over all ranks.
//
// Limit is the bandwidth of the same traffic without any synchronization. Each rank runs the loops of package kern over
// its own buffers, and reads and writes as many bytes as an operation that touches each element once.
//
// Invariants: a measured call passes nothing that allocates; the values of the check
// are exact in every dtype, whatever the order of the reduction; nothing is timed while
// it is checked.
package bench
