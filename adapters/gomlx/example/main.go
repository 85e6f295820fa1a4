// Command example learns a sum of five numbers, on all ranks together. It's the same program for one rank:
//
//	go build -o train ./example
//	chorus run -n 2 ./train
package main

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlcontext "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	chorusgomlx "github.com/chorus-comms/chorus/adapters/gomlx"
	"github.com/chorus-comms/chorus/comm"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := comm.New(ctx) // the launcher's ranks
	if err != nil {
		return err
	}
	backend, err := simplego.New("")
	if err != nil {
		return err
	}
	mlctx := mlcontext.New()
	base := optimizers.Adam().LearningRate(0.05).Done().(chorusgomlx.Base) // which can be given gradients
	opt := chorusgomlx.New(c, backend, base)
	loop := train.NewLoop(train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil))
	opt.Attach(ctx, loop)
	if err := chorusgomlx.Sync(ctx, c, mlctx); err != nil {
		return err
	}
	metrics, err := loop.RunSteps(&examples{rank: c.Rank(), ranks: c.Size()}, 200)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: the loss is below 0.01: %t\n", c.Rank(), c.Size(),
		tensors.ToScalar[float32](metrics[0]) < 0.01)
	return c.Finalize(ctx)
}

func model(ctx *mlcontext.Context, _ any, in []*graph.Node) []*graph.Node {
	return []*graph.Node{layers.Dense(ctx, in[0], true, 1)}
}

// examples are a rank's own: every rank has 32 of each step.
type examples struct{ rank, ranks, step int }

func (*examples) Name() string { return "sums" }
func (e *examples) Reset()     { e.step = 0 }

func (e *examples) Yield() (spec any, in, labels []*tensors.Tensor, err error) {
	const n, features = 32, 5
	var x, y []float32
	for i := range n {
		sum := float32(0)
		for j := range features {
			v := float32(math.Sin(float64((e.step*e.ranks+e.rank)*n+i)*features + float64(j)))
			x, sum = append(x, v), sum+v
		}
		y = append(y, sum)
	}
	e.step++
	return nil, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, n, features)},
		[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, n, 1)}, nil
}
