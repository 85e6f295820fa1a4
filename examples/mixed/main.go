// Mixed is a rank in Go in a training job of PyTorch: it trains nothing, and keeps the job's metrics. The other ranks
// run train.py, with PyTorch's own Gloo backend. Under torchrun, with run.sh, the last rank is this program:
//
//	go build -o bin/ ./examples/mixed
//	torchrun --nproc-per-node 3 --no-python sh examples/mixed/run.sh bin/mixed
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/chorus-comms/chorus/comm"
	_ "github.com/chorus-comms/chorus/comm/gloo"
	"github.com/chorus-comms/chorus/tensor"
)

func main() {
	every := flag.Int("every", 10, "steps between two lines")
	flag.Parse()
	if err := run(context.Background(), *every); err != nil {
		log.Fatal(err)
	}
}

// run takes the metrics of each step, until the trainers say that it was the last.
func run(ctx context.Context, every int) error {
	c, err := comm.New(ctx, comm.WithBackend("gloo"))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	// The trainers' new_group, which all ranks call.
	if _, err := c.Split(ctx, nil); err != nil {
		return err
	}
	for step := 1; ; step++ {
		sums := []float32{0, 0, 0} // of the trainers: loss, samples, whether it's the last step
		if err := c.Reduce(ctx, tensor.Of(sums), c.Rank(), comm.Sum); err != nil {
			return err
		}
		trainers := float32(c.Size() - 1)
		last := sums[2] == trainers
		if step%every == 0 || last {
			fmt.Printf("step %d: loss %.4f over %.0f samples\n", step, sums[0]/trainers, sums[1])
		}
		if last {
			return c.Barrier(ctx)
		}
	}
}
