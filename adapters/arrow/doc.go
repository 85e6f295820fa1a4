// Package chorusarrow has Apache Arrow's arrays, record batches and tables as tensors and messages of Chorus.
//
//	x, err := chorusarrow.Tensor(batch.Column(0))        // the same memory
//	sum, err := tensor.Empty(x.DType(), x.Shape()...)
//	err = c.AllReduce(ctx, x, comm.Sum, comm.Into(sum))
//	a, err := chorusarrow.Array(sum)                     // and back
//
//	batch, err = chorusarrow.Broadcast(ctx, c, batch, 0)
//	table, err = chorusarrow.AllGather(ctx, c, table)
//
// Tensors are for columns of numbers, dates and times, and of fixed-size lists of them, such as embeddings. A column
// with nulls is an error that says how many, or a tensor and a mask ([Masked]).
//
// Batches and tables travel in Arrow's IPC format, of every type: [Codec] has them encoded for all that package comm
// can do with Go values, of a gibibyte at most (comm.MaxObjectBytes).
package chorusarrow
