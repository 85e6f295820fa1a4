package chorusgomlx_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/backends/simplego"
	mlcontext "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	chorusgomlx "github.com/chorus-comms/chorus/adapters/gomlx"
	"github.com/chorus-comms/chorus/comm"
)

// A program trains the same whether it's alone or started by `chorus run -n 8`.
func Example() {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithRank(0, 1)) // without options: the launcher's ranks
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	backend, err := simplego.New("")
	if err != nil {
		fmt.Println(err)
		return
	}
	mlctx := mlcontext.New()
	opt := chorusgomlx.New(c, backend, optimizers.StochasticGradientDescent())
	loop := train.NewLoop(train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil))
	opt.Attach(ctx, loop)
	if err := chorusgomlx.Sync(ctx, c, mlctx); err != nil {
		fmt.Println(err)
		return
	}
	_, err = loop.RunSteps(&set{c: c}, 10)
	fmt.Println(optimizers.GetGlobalStep(mlctx), err)
	// Output: 10 <nil>
}
