// Command window keeps a table of tickets in rank 0's memory, from which every
// rank draws without rank 0's taking part.
//
//	chorus run -n 4 go run ./examples/window
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

const tickets = 100 // each rank draws so many

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := comm.New(ctx, comm.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)

	// Element 0 is the next ticket; element 1+r counts what rank r drew.
	mem, err := c.Zeros(dtype.Int64, 1+c.Size())
	if err != nil {
		return err
	}
	w, err := c.NewWindow(ctx, mem)
	if err != nil {
		return err
	}
	one, ticket := tensor.Of([]int64{1}), []int64{0}
	last := int64(-1)
	for range tickets {
		if err := w.FetchOp(ctx, tensor.Of(ticket), one, comm.Sum, comm.Target{Rank: 0}); err != nil {
			return err
		}
		if ticket[0] <= last {
			return fmt.Errorf("rank %d drew ticket %d after %d", c.Rank(), ticket[0], last)
		}
		last = ticket[0]
	}
	if err := w.Accumulate(ctx, tensor.Of([]int64{tickets}), comm.Sum, comm.Target{Rank: 0, Offset: 1 +
		c.Rank()}); err != nil {
		return err
	}
	if err := w.Fence(ctx, 0); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == 0 {
		table, err := tensor.Slice[int64](mem)
		if err != nil {
			return err
		}
		if want := int64(tickets * c.Size()); table[0] != want {
			return fmt.Errorf("%d tickets drawn, want %d", table[0], want)
		}
		fmt.Printf("%d tickets drawn; by rank: %v; access to rank 0's memory: %v\n", table[0], table[1:], w.Access(0))
	}
	return w.Close(ctx)
}
