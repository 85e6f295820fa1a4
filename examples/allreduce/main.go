// Command allreduce averages a vector over all ranks and checks the result.
//
//	chorus run -n 4 go run ./examples/allreduce
//	mpirun -np 4 ./allreduce
//	torchrun --no-python --nproc-per-node 4 ./allreduce
//
// The program doesn't change with the launcher: comm.New finds rank, size and
// the other ranks in the environment.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

func main() {
	log.SetFlags(0)
	count := flag.Int("count", 1<<20, "elements")
	ordinary := flag.Bool("ordinary", false, "use Go's memory instead of memory that peers can map")
	flag.Parse()
	if err := run(context.Background(), *count, *ordinary); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, count int, ordinary bool) (err error) {
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)

	var x *tensor.Tensor
	if ordinary {
		x = tensor.Of(make([]float32, count))
	} else if x, err = c.Empty(dtype.Float32, count); err != nil {
		return err
	}
	data, err := tensor.Slice[float32](x)
	if err != nil {
		return err
	}
	algorithm := ""
	c.RegisterCompletionHook(func(op comm.OpInfo, _ error) { algorithm = op.Algorithm })

	for i := range data {
		data[i] = float32(c.Rank())
	}
	start := time.Now()
	if err := c.AllReduce(ctx, x, comm.Avg, comm.Timeout(time.Minute)); err != nil {
		return err
	}
	took := time.Since(start)

	want := float32(c.Size()-1) / 2
	for i, v := range data {
		if v != want {
			return fmt.Errorf("rank %d: element %d is %v, want %v", c.Rank(), i, v, want)
		}
	}
	fmt.Printf("rank %d of %d: %d elements averaged to %v by %s, the first time in %v\n", c.Rank(), c.Size(), count, want,
		algorithm, took.Round(time.Microsecond))
	return nil
}
