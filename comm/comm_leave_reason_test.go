package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// TestLeave has a rank say why it leaves, before the first operation and after one: that is what the others read who
// wait for it, on one line and bounded.
func TestLeave(t *testing.T) {
	const exited = "its process exited with the communicator open"
	long := strings.Repeat("é", 150)
	reasons := []struct{ why, want string }{
		{"it raised ValueError: bad batch (train.py:12)", "it raised ValueError: bad batch (train.py:12)"},
		{"two\nlines\x1b[2J\u202e", `two\nlines\x1b[2J\u202e`},
		{long, long[:200]},
		{"", exited},
	}
	worlds := map[string]func(testing.TB, int) []*comm.Comm{"mem": over("mem"), "shm": over("shm"), "tcp": over("tcp"),
		"mixed": mixed}
	for name, world := range worlds {
		for i, x := range reasons {
			for after := range 2 {
				if after == 0 && x.why == "" {
					continue // ranks that aren't met hear no more than that it has closed its end
				}
				t.Run(fmt.Sprintf("%s/%d/%d", name, i, after), func(t *testing.T) {
					t.Parallel()
					each(t, world(t, 3), func(ctx context.Context, c *comm.Comm) error {
						for range after {
							if err := c.Barrier(ctx); err != nil {
								return err
							}
						}
						if c.Rank() == 1 {
							return c.Leave(ctx, x.why)
						}
						var lost *comm.PeerLostError
						want := fmt.Sprintf("%s, after operation #%d", x.want, after)
						if err := c.Barrier(ctx); !errors.As(err, &lost) || lost.Peer != 1 || lost.Cause != want {
							return fmt.Errorf("the error is %v, and not %q", err, want)
						}
						return c.Finalize(ctx)
					})
				})
			}
		}
	}
}

// TestLeaveDelivers has a rank leave that has sent something: it's received.
func TestLeaveDelivers(t *testing.T) {
	for _, name := range []string{"mem", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			each(t, over(name)(t, 2), func(ctx context.Context, c *comm.Comm) error {
				if c.Rank() == 1 {
					var sent comm.Work
					if err := c.Send(ctx, tensor.Of([]int32{7}), 0, comm.Async(&sent)); err != nil {
						return err
					}
					return errors.Join(c.Leave(ctx, "it raised ValueError"), sent.Wait(ctx))
				}
				got := []int32{0}
				if err := c.Recv(ctx, tensor.Of(got), 1); err != nil || got[0] != 7 {
					return fmt.Errorf("received %v, and the error is %v", got, err)
				}
				return c.Finalize(ctx)
			})
		})
	}
}
