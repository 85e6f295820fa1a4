// Package chorusgomlx trains GoMLX's models data-parallel: each rank computes the gradients of its own part of a batch,
// and all ranks apply the average.
//
//	opt := chorusgomlx.New(c, backend, optimizers.Adam().Done().(chorusgomlx.Base))
//	trainer := train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil)
//	loop := train.NewLoop(trainer)
//	opt.Attach(ctx, loop)                    // or opt.Step(ctx) behind each trainer.TrainStep
//	err = chorusgomlx.Sync(ctx, c, mlctx)    // all begin with the variables of rank 0
//	_, err = loop.RunSteps(dataset, steps)   // of this rank's examples
//
// [Optimizer] takes the place of the optimizer of GoMLX's trainer, and has it: the trainer's graph leaves the gradients
// in variables, [Optimizer.Step] averages them by all-reduces where they lie, and a second graph applies them. Every
// rank ends a step with the same bits in its variables, which are those of one process with the joined batch but for
// the rounding of sums.
//
// The average is that of the joined batch if all ranks' batches have equally many examples, and the loss is a mean.
// Metrics of the trainer are those of the rank's own batches. State that a model keeps beside its parameters, such as
// the averages of batch normalization, stays each rank's own until Sync.
//
// Any backend of GoMLX does; the gradients are reduced in place if it shares its buffers with the host, as its Go
// backend does, and otherwise in the host's copy.
package chorusgomlx
