package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// TestBuffersAreFreeAfterFailure lets one rank give up in the middle of operations whose
// ranks store into each other's tensors. As soon as its call has returned, no other rank may store
// into the memory any more.
func TestBuffersAreFreeAfterFailure(t *testing.T) {
	const count = 4 << 20 // elements; an operation takes milliseconds
	for _, fabric := range []string{"mem", "shm"} {
		for round := range 10 {
			comms := over(fabric)(t, 3)
			var returned sync.WaitGroup // the other ranks
			returned.Add(2)
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				x := tensor.Must(c.Zeros(dtype.Float32, count))
				defer x.Free()
				if c.Rank() != 0 {
					defer returned.Done()
					var err error
					for err == nil {
						err = c.AllReduce(ctx, x, comm.Sum)
					}
					if !errors.Is(err, comm.ErrAborted) {
						return err
					}
					return nil
				}
				v, err := tensor.Slice[float32](x)
				if err != nil {
					return err
				}
				if err := c.AllReduce(ctx, x, comm.Sum); err != nil { // maps all memory
					return err
				}
				for c.Err() == nil {
					short, cancel := context.WithCancel(ctx)
					stop := time.AfterFunc(time.Duration(round%5)*250*time.Microsecond, cancel)
					err := c.AllReduce(short, x, comm.Sum)
					stop.Stop()
					cancel()
					if err != nil && !errors.Is(err, context.Canceled) {
						return err
					}
				}
				for i := range v {
					v[i] = 7
				}
				returned.Wait()
				for i, y := range v {
					if y != 7 {
						return fmt.Errorf("%s, round %d: element %d was overwritten with %v after the call had returned", fabric, round,
							i, y)
					}
				}
				return nil
			})
			finalize(t, comms)
			if t.Failed() {
				return
			}
		}
	}
}
