package fault_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/fabric/fault"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// How does my program take it if rank 1's messages don't arrive any more? The fabric "fault", by its hints, loses them
// on purpose.
func Example() {
	st := store.NewHash(time.Minute)
	defer st.Close()
	var all sync.WaitGroup
	for rank := range 2 {
		all.Go(func() {
			ctx := context.Background()
			hints := map[string]string{"fabric": "fault", "fabric.inner": "mem"}
			if rank == 1 {
				hints["fabric.script"] = "drop class=p2p after=1"
			}
			c, err := comm.New(ctx, comm.WithRank(rank, 2), comm.WithStore(st), comm.WithHints(hints))
			if err != nil {
				fmt.Println(err)
				return
			}
			defer c.Finalize(ctx)
			for i := range int32(2) {
				if rank == 1 {
					c.Send(ctx, tensor.Of([]int32{i}), 0)
					continue
				}
				x := []int32{-1}
				err := c.Recv(ctx, tensor.Of(x), 1, comm.Timeout(100*time.Millisecond))
				fmt.Println(x, errors.Is(err, comm.ErrTimeout))
			}
			c.Barrier(ctx)
		})
	}
	all.Wait()
	// Output:
	// [0] false
	// [-1] true
}

// A script says what to break, in a hint or by a flag of one's own program.
func ExampleParseScript() {
	s, err := fault.ParseScript("drop peer=2 after=10 count=1; delay=5ms chance=0.01; seed=7")
	fmt.Println(len(s.Rules), s.Rules[0].Do == fault.Drop, s.Rules[1].Delay, err)
	_, err = fault.ParseScript("drop peer=nobody")
	fmt.Println(err != nil)
	// Output:
	// 2 true 5ms <nil>
	// true
}
