package comm_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// TestBatchOfSplits issues all-to-alls of rows as a batch that was checked before: its splits count rows each time.
func TestBatchOfSplits(t *testing.T) {
	comms := over("mem")(t, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		r := c.Rank()
		// Each rank has three rows of two elements. It sends one to rank 0, and two to rank 1.
		in := tensor.Must(tensor.Of([]int32{1, 2, 3, 4, 5, 6}).View(3, 2))
		for _, async := range []bool{false, true} {
			data := make([]int32, 4*(1+r))
			out := tensor.Must(tensor.Of(data).View(2*(1+r), 2))
			b := c.Batch()
			b.Add(&comm.Op{Kind: backend.AllToAllVSingle, In: in, Out: out, InSplits: []int{1, 2},
				OutSplits: []int{1 + r, 1 + r}})
			if err := b.Check(ctx); err != nil {
				return fmt.Errorf("check: %w", err)
			}
			var w comm.Work
			var opts []comm.Option
			if async {
				opts = append(opts, comm.Async(&w))
			}
			err := b.Issue(ctx, opts...)
			if async && err == nil {
				err = w.Wait(ctx)
			}
			want := [][]int32{{1, 2, 1, 2}, {3, 4, 5, 6, 3, 4, 5, 6}}[r]
			if err != nil || !slices.Equal(data, want) {
				return fmt.Errorf("async %v: rank %d has %v, want %v; %v", async, r, data, want, err)
			}
		}
		return nil
	})
	finalize(t, comms)
}
