package comm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
)

// TestSignalOfOneThatLeft waits for a signal of a rank that leaves instead: it's that rank which is missing, and this
// rank has not finalized anything.
func TestSignalOfOneThatLeft(t *testing.T) {
	each(t, over("mem")(t, 2), func(ctx context.Context, c *comm.Comm) error {
		w, err := c.NewWindow(ctx, zeros(1))
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			for range 5 { // rank 0 has nothing but its window, which it waits for
				time.Sleep(time.Millisecond)
				runtime.GC()
			}
			return c.Finalize(ctx)
		}
		var lost *comm.PeerLostError
		if err := w.WaitSignal(ctx, 1, 0); !errors.As(err, &lost) || lost.Peer != 1 {
			return fmt.Errorf("a signal of a rank that has left: %v", err)
		}
		return nil
	})
}
