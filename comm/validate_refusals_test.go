package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// TestRefusedBeforeAnythingMoves checks that an operation that cannot start leaves its tensors, and the communicator,
// alone.
func TestRefusedBeforeAnythingMoves(t *testing.T) {
	comms := over("mem")(t, 2)
	ended, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("not today")
	cancel(reason)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		v := []float32{1, 2, 3}
		x := tensor.Of(v)
		if err := c.AllReduce(ctx, x, comm.PremulSum(2), comm.Algorithm("no-such")); !errors.Is(err,
			comm.ErrInvalidArgument) {
			return fmt.Errorf("unknown algorithm: %v", err)
		}
		for what, op := range map[string]func() error{
			"all_reduce": func() error { return c.AllReduce(ended, x, comm.PremulSum(2)) },
			"barrier":    func() error { return c.Barrier(ended) },
			"send":       func() error { return c.Send(ended, x, 1-c.Rank()) },
			"recv":       func() error { return c.Recv(ended, x, 1-c.Rank()) },
			"async": func() error {
				var w comm.Work
				if err := c.Broadcast(ended, x, 0, comm.Async(&w)); err != nil {
					return err
				}
				return w.Wait(ctx)
			},
			"split": func() error { _, err := c.Split(ended, []int{0, 1}); return err },
			"new_window": func() error {
				_, err := c.NewWindow(ended, x)
				return err
			},
			"batch": func() error {
				b := c.Batch()
				b.Send(x, 1-c.Rank())
				return b.Issue(ended)
			},
		} {
			err := op()
			var canceled *comm.CanceledError
			if !errors.As(err, &canceled) || !errors.Is(err, reason) || !errors.Is(err, comm.ErrCanceled) {
				return fmt.Errorf("%s whose context has ended gives %v", what, err)
			}
			if canceled.Comm != c.Name() || canceled.Reporter != c.Rank() || canceled.Op == "" {
				return fmt.Errorf("%s: the error does not say where: %+v", what, canceled.Where)
			}
		}
		if v[0] != 1 || v[1] != 2 || v[2] != 3 {
			return fmt.Errorf("a refused operation wrote %v", v)
		}
		var w comm.Work
		if err := comm.Send(ctx, comm.Objects{C: c}, 1, 1-c.Rank(), comm.Async(&w)); !errors.Is(err,
			comm.ErrInvalidArgument) {
			return fmt.Errorf("an asynchronous object gives %v", err)
		}
		b := c.Batch()
		b.Send(x, c.Rank())
		if err := b.Issue(ctx, comm.Tag(3)); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("a batch with a tag gives %v", err)
		}
		return c.AllReduce(ctx, x, comm.Sum)
	})
	finalize(t, comms)
}

// TestEndedContext ends a collective's context in its middle.
func TestEndedContext(t *testing.T) {
	for _, fabric := range []string{"mem", "tcp"} {
		comms := over(fabric)(t, 2)
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 1 {
				<-c.Broken()
				var to *comm.TimeoutError
				if err := c.Err(); !errors.As(err, &to) || len(to.Missing) != 1 || to.Missing[0] != 1 {
					return fmt.Errorf("the missing rank gets %v", err)
				}
				return nil
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := c.Barrier(short)
			var to *comm.TimeoutError
			if !errors.As(err, &to) || len(to.Missing) != 1 || to.Missing[0] != 1 || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a deadline gives %v", err)
			}
			return nil
		})
		finalize(t, comms)

		comms = over(fabric)(t, 2)
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 1 {
				<-c.Broken()
				if err := c.Err(); !errors.Is(err, comm.ErrAborted) {
					return fmt.Errorf("the other rank gets %v", err)
				}
				return nil
			}
			middle, cancel := context.WithCancel(ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			if err := c.Barrier(middle); !errors.Is(err, comm.ErrAborted) || !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a context that ends gives %v", err)
			}
			return nil
		})
		finalize(t, comms)
	}
}

// TestLongReason aborts with a reason that is too long for a message to the others: they must get it all the same.
func TestLongReason(t *testing.T) {
	comms := over("mem")(t, 2)
	reason := errors.New("because " + strings.Repeat("<\x01>", 2000))
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 0 {
			c.Abort(reason)
			if err := c.Barrier(ctx); !errors.Is(err, reason) {
				return fmt.Errorf("the rank that aborts gets %v", err)
			}
			return nil
		}
		err := c.Barrier(ctx, comm.Timeout(5*time.Second))
		if !errors.Is(err, comm.ErrAborted) || !strings.Contains(err.Error(), "because") {
			return fmt.Errorf("the other rank gets %v", err)
		}
		return nil
	})
	finalize(t, comms)
}
