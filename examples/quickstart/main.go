// Command quickstart is the program of the README.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
)

func main() {
	ctx := context.Background()
	c, err := comm.New(ctx) // rank, size and peers come from the launcher
	if err != nil {
		log.Fatal(err)
	}
	defer c.Finalize(ctx)

	x, err := c.Empty(dtype.Float32, 1024) // memory that peers on this host can map
	if err != nil {
		log.Fatal(err)
	}
	x.Fill(float32(c.Rank()))
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		log.Fatal(err) // names the rank, the operation and missing ranks
	}
	fmt.Printf("rank %d of %d: sum of the ranks is %v\n", c.Rank(), c.Size(), x.At(0))
}
