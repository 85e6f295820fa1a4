package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chorus-comms/chorus/adapters/etcd"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/launch"
)

// A rank meets the others in etcd. Here nothing serves it, which the error says.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	st, err := etcd.Open(ctx, []string{"127.0.0.1:1"}, etcd.Options{Prefix: "/jobs/train-17"})
	if err != nil {
		fmt.Println(errors.Is(err, context.DeadlineExceeded))
		return
	}
	defer st.Close()
	c, err := comm.New(ctx, comm.WithRank(0, 4), comm.WithStore(st))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	// Output: true
}

// A launcher of an elastic job, one on each node, whose nodes meet in etcd. Here nothing serves it, and it ends.
func Example_launcher() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	job := &launch.Job{
		Command:      []string{"sh", "train.sh"},
		RanksPerNode: 8,
		Nodes:        4,
		MinNodes:     2,
		NodeRank:     launch.AnyNodeRank,
		Store:        "etcd://127.0.0.1:1", // package etcd is imported
		RunID:        "run7",               // no other job there has had it
		Stdout:       os.Stdout,
		Stderr:       os.Stderr,
	}
	err := job.Run(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), launch.ExitCode(err))
	// Output: true 1
}
