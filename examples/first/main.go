// Command first averages a vector over all ranks.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

func main() {
	ctx := context.Background()
	c, err := comm.New(ctx) // returns when all ranks have found each other
	if err != nil {
		log.Fatal(err)
	}
	defer c.Finalize(ctx)

	values := []float64{float64(c.Rank()), 1}
	if err := average(ctx, c, values); err != nil {
		log.Fatal(err) // names the rank, the operation and missing ranks
	}
	fmt.Printf("rank %d of %d: %v\n", c.Rank(), c.Size(), values)
}

// average gives every rank the average of all ranks' values.
func average(ctx context.Context, c *comm.Comm, values []float64) error {
	return c.AllReduce(ctx, tensor.Of(values), comm.Avg, comm.Timeout(time.Minute))
}
