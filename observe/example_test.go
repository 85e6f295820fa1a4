package observe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Explain finds the rank to blame. The ranks, goroutines here, write what they have recorded, and Explain puts it side
// by side.
func ExampleExplain() {
	dir, err := os.MkdirTemp("", "dumps")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	st := store.NewHash(time.Minute)
	defer st.Close()
	var all, failed, dumped sync.WaitGroup
	failed.Add(2)
	dumped.Add(1)
	for rank := range 2 {
		all.Go(func() {
			ctx := context.Background()
			c, err := comm.New(ctx, comm.WithRank(rank, 2), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				fmt.Println(err)
				return
			}
			defer c.Finalize(ctx)
			x := tensor.Of(make([]float32, 8+rank)) // a mistake
			if err := c.AllReduce(ctx, x, comm.Sum); !errors.Is(err, comm.ErrMismatch) {
				fmt.Println(err)
			}
			failed.Done()
			failed.Wait()
			if rank == 0 {
				if _, err := record.DumpAll(dir); err != nil {
					fmt.Println(err)
				}
				dumped.Done()
			}
			dumped.Wait() // what has ended writes nothing
		})
	}
	all.Wait()
	dumps, err := observe.ReadDir(dir, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range observe.Explain(dumps).Findings {
		fmt.Println(f.Kind, f.Comm, f.Seq)
	}
	// Output: mismatch world 1
}
