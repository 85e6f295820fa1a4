// Package demo is the main job of this project in small: data-parallel training
// on real data, checked.
//
// Every rank trains the same network on its share of each batch of handwritten digits;
// an all-reduce averages the gradients, so that all ranks take the same step.
//
//	res, err := demo.Run(ctx, c, demo.Config{Epochs: 60})   // on every rank of c
//	fmt.Println(res.Accuracy)
//
// At the end Run measures the bandwidth of all-reduce and checks the result: all ranks must hold the same bits. Rank 0,
// which trains alone on the same batches, must arrive at the same parameters within Tolerance.
//
// Invariants: a batch, and the order of its images, depends on the seed and the
// epoch alone, not on the number of ranks; parameters and gradients lie in memory from
// Comm.Empty, one flat buffer each.
package demo
