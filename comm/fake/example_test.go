package fake_test

import (
	"context"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm"
	_ "github.com/chorus-comms/chorus/comm/fake"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// What does my program do as rank 700 of 1024? Its operations succeed without the others.
func Example() {
	ctx := context.Background()
	st := store.NewHash(time.Minute) // which no other rank uses
	defer st.Close()
	c, err := comm.New(ctx, comm.WithBackend("fake"), comm.WithRank(700, 1024), comm.WithStore(st))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	x := []float32{1, 2}
	err = c.AllReduce(ctx, tensor.Of(x), comm.Sum)
	fmt.Println(c.Rank(), c.Size(), x, err) // nothing moved
	// Output: 700 1024 [1 2] <nil>
}
