// Command ring passes a growing list once around the ranks.
//
//	chorus run -n 4 go run ./examples/ring
//
// Rank 0 starts it; each rank adds itself and hands it on. It shows messages
// between two ranks, of values that encode, and of tensors in a batch.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// stop is what every rank adds.
type stop struct {
	Rank, Process int
}

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
	n, me := c.Size(), c.Rank()
	right, left := (me+1)%n, (me+n-1)%n
	o := comm.Objects{C: c}

	var stops []stop
	if me > 0 {
		if stops, _, err = comm.Recv[[]stop](ctx, o, left); err != nil {
			return err
		}
	}
	stops = append(stops, stop{me, os.Getpid()})
	if n > 1 {
		if err := comm.Send(ctx, o, stops, right); err != nil {
			return err
		}
	}
	if me == 0 && n > 1 {
		if stops, _, err = comm.Recv[[]stop](ctx, o, left); err != nil {
			return err
		}
	}
	if me == 0 {
		for _, s := range stops {
			fmt.Printf("rank %d, process %d\n", s.Rank, s.Process)
		}
	}

	// All at once to the right: a batch posts before it waits, so no rank waits for ever.
	mine, got := []int64{int64(me)}, []int64{-1}
	b := c.Batch()
	b.Send(tensor.Of(mine), right)
	b.Recv(tensor.Of(got), left)
	if err := b.Issue(ctx); err != nil {
		return err
	}
	if got[0] != int64(left) {
		return fmt.Errorf("rank %d got %d, want %d", me, got[0], left)
	}
	return nil
}
