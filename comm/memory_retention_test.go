package comm_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// TestBuffersAreLetGo checks that a communicator keeps no buffer alive after its operations.
func TestBuffersAreLetGo(t *testing.T) {
	for _, fabric := range []string{"mem", "tcp"} {
		comms := over(fabric)(t, 2)
		var freed atomic.Int32
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			v := make([]float32, 1<<16)
			runtime.AddCleanup(&v[0], func(int) { freed.Add(1) }, 0)
			x := tensor.Of(v)
			peer := 1 - c.Rank()
			b := c.Batch()
			b.Send(x, peer)
			b.Recv(tensor.Of(make([]float32, len(v))), peer)
			if err := b.Issue(ctx); err != nil {
				return err
			}
			return c.AllReduce(ctx, x, comm.Sum)
		})
		for wait := time.Now().Add(10 * time.Second); freed.Load() < 2 && time.Now().Before(wait); runtime.Gosched() {
			runtime.GC()
		}
		if n := freed.Load(); n != 2 {
			t.Errorf("%s: %d of 2 buffers can be collected", fabric, n)
		}
		finalize(t, comms)
	}
}
