package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// TestMismatchBefore has two ranks be the root of one broadcast, in which they wait for no other. The next operation, in
// which every rank waits for all, is the mismatch of each rank, also where the two exchange no message.
func TestMismatchBefore(t *testing.T) {
	next := map[string]func(context.Context, *comm.Comm) error{
		"all-reduce": func(ctx context.Context, c *comm.Comm) error { return c.AllReduce(ctx, zeros(8), comm.Sum) },
		"ring": func(ctx context.Context, c *comm.Comm) error {
			return c.AllReduce(ctx, zeros(8), comm.Sum, comm.Algorithm("ring"))
		},
		"barrier": func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) },
		"all-gather": func(ctx context.Context, c *comm.Comm) error {
			return c.AllGatherSingle(ctx, zeros(8*c.Size()), zeros(8))
		},
	}
	for fabric, open := range map[string]func(testing.TB, int) []*comm.Comm{"tcp": over("tcp"), "mixed": mixed,
		"shm": over("shm")} {
		for _, size := range testutil.Pick([]int{3}, []int{3, 4, 5, 8}) {
			for name, next := range next {
				t.Run(fmt.Sprintf("%s/%d/%s", fabric, size, name), func(t *testing.T) {
					t.Parallel()
					for other := 1; other < size; other++ {
						each(t, open(t, size), func(ctx context.Context, c *comm.Comm) error {
							root := 0
							if c.Rank() == other {
								root = other
							}
							err := c.Broadcast(ctx, zeros(8), root)
							if err == nil {
								err = next(ctx, c)
							}
							if !errors.Is(err, comm.ErrMismatch) {
								return fmt.Errorf("with roots 0 and %d: %v", other, err)
							}
							c.Finalize(ctx)
							return nil
						})
					}
				})
			}
		}
	}
}
