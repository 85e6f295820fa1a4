//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// A run of a graph to which a rank doesn't come is overdue: all ranks learn which one isn't in it. The runs before were
// in time.
func TestReplaysInTime(t *testing.T) {
	comms := open(t, "nccl", simulate(t, nccltest.Options{Version: levels[len(levels)-1]}), 3,
		comm.WithHints(map[string]string{"graph_timeout_check_interval_ms": "20"}))
	var found atomic.Int32
	each(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
		g, err := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Sum) })
		if err != nil {
			return err
		}
		defer g.Close()
		if err := errors.Join(g.Replay(s), g.Replay(s), s.Synchronize(ctx)); err != nil {
			return err
		}
		if err := c.SetTimeout(300 * time.Millisecond); err != nil { // which holds for runs, too
			return err
		}
		if c.Rank() != 1 {
			err = g.Replay(s)
		}
		<-c.Broken()
		var late *comm.TimeoutError
		if !errors.As(c.Err(), &late) || !slices.Equal(late.Missing, []int{1}) || late.Elapsed < 300*time.Millisecond {
			return fmt.Errorf("broken by %v", c.Err())
		}
		if late.Op == "all_reduce" && late.Seq == 2 { // to the others it's one of another rank
			found.Add(1)
		}
		if late.Doing[1] == "" {
			return fmt.Errorf("nothing is said of what rank 1 does: %v", late)
		}
		return err
	})
	if found.Load() == 0 {
		t.Error("no rank says which operation is late")
	}
}
