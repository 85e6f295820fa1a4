//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Hints of an operation are its configuration: the library's function that takes one is called, and what it refuses is
// an error of that call.
func TestOperationHints(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	library := simulate(t, nccltest.Options{Version: "2.32", Fail: func(call string, rank int) abi.Result {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(call, "Config") && rank == 0 && !slices.Contains(seen, call) {
			seen = append(seen, call)
		}
		return abi.Success
	}})
	with := func(pairs ...string) (opts []comm.Option) {
		for i := 0; i < len(pairs); i += 2 {
			opts = append(opts, comm.Hint(pairs[i], pairs[i+1]))
		}
		return opts
	}
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		two := tensor.Must(tensor.EmptyOn(ctx, s.Device(), dtype.Int32, 200))
		var out *tensor.Tensor
		if c.Rank() == 0 {
			out = two
		}
		h := with("op.minCTAs", "1", "op.maxCTAs", "4", "op.algSelection", "ring")
		if err := errors.Join(c.AllReduce(ctx, x, comm.Sum, h...), c.Broadcast(ctx, x, 0, h...),
			c.Reduce(ctx, x, 0, comm.Sum, h...),
			c.AllGatherSingle(ctx, two, x, h...), c.ReduceScatterSingle(ctx, x, two, comm.Sum, h...),
			c.AllToAllSingle(ctx, two, tensor.Must(tensor.ZerosOn(ctx, s.Device(), dtype.Int32, 200)), h...),
			c.GatherSingle(ctx, out, x, 0, h...), s.Synchronize(ctx)); err != nil {
			return err
		}
		reversed := with("op.minCTAs", "4", "op.maxCTAs", "1")
		for text, err := range map[string]error{
			"minCTAs 4, maxCTAs 1":        c.AllReduce(ctx, x, comm.Sum, reversed...),
			`minCTAs="many" is no number`: c.AllReduce(ctx, x, comm.Sum, with("op.minCTAs", "many")...),
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("want %q, got %v", text, err)
			}
		}
		return errors.Join(c.Err(), c.AllReduce(ctx, x, comm.Sum), c.Barrier(ctx, h...), s.Synchronize(ctx))
	})
	want := []string{"ncclAllReduceConfig", "ncclBroadcastConfig", "ncclReduceConfig", "ncclAllGatherConfig",
		"ncclReduceScatterConfig", "ncclAlltoAllConfig", "ncclGatherConfig"}
	seen = slices.DeleteFunc(seen, func(s string) bool { return s == "ncclCommInitRankConfig" })
	if !slices.Equal(seen, want) {
		t.Errorf("called %v", seen)
	}
	old := simulate(t, nccltest.Options{Version: "2.29"})
	each(t, open(t, "nccl", old, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		err := c.AllReduce(ctx, x, comm.Sum, with("op.minCTAs", "1")...)
		if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), "which came with NCCL 2.31") {
			return fmt.Errorf("an old library gives %v", err)
		}
		return nil
	})
}
