package gloo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// failing is a rank of PyTorch whose operations fail; one that doesn't follows each.
const failing = `
import json, os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for step in json.load(open(directory + "/steps.json")):
    works = []
    try:
        if step["op"] == "premul_sum":
            works.append(dist.all_reduce(torch.ones(3), op=dist._make_nccl_premul_sum(2.0), async_op=True))
        else:
            run(step, dist.group.WORLD, dist.get_rank(), dist.get_world_size(), works.append)
        for w in works:
            w.wait()
    except RuntimeError:
        pass
    else:
        print("is there:", step, flush=True)
        os._exit(1)
    x = torch.ones(5)
    dist.all_reduce(x)
    assert x[4] == dist.get_world_size(), x
os._exit(0)
`

// TestForeign demands that what ranks of PyTorch lack is refused here before anything is sent, and that the collectives
// that follow have the same numbers everywhere: those of PyTorch count what fails.
func TestForeign(t *testing.T) {
	version := glootest.Version(t)
	var steps []glootest.Operation
	for _, kind := range glootest.Kinds {
		s := glootest.Operation{Kind: kind, DType: "int16", Count: 3}
		if glootest.Reduces(kind) {
			s.Op = "sum"
		}
		known := s
		known.DType = "float32"
		if kind != "barrier" && known.In(version) {
			steps = append(steps, s)
		}
	}
	if version > 206 {
		steps = append(steps, glootest.Operation{Kind: "gather", DType: "complex64", Count: 3},
			glootest.Operation{Kind: "all_reduce", Op: "premul_sum", DType: "float32"})
	}
	j := start(t, "pg", failing, steps)
	j.each(func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of(make([]float32, 5))
		has := c.Capabilities().Reduces
		if has(comm.Sum.Kind, dtype.Int16) || has(comm.Avg.Kind, dtype.Int32) || !has(comm.Sum.Kind, dtype.Float64) {
			return errors.New("the capabilities aren't those of ranks of PyTorch")
		}
		if err := c.Scan(ctx, x, comm.Sum); !errors.Is(err, comm.ErrUnsupported) {
			return fmt.Errorf("a scan: %v", err)
		}
		for _, s := range steps {
			var err error
			if s.Op == "premul_sum" {
				err = c.AllReduce(ctx, x, comm.PremulSum(2))
			} else {
				_, err = s.Run(ctx, c, func(dt dtype.DType, n int) *tensor.Tensor { return tensor.Must(tensor.Empty(dt, n)) })
			}
			if !errors.Is(err, comm.ErrUnsupported) {
				return fmt.Errorf("%+v: %v", s, err)
			}
			y := slices.Repeat([]float32{1}, 5)
			if err := c.AllReduce(ctx, tensor.Of(y), comm.Sum); err != nil || y[4] != 2 {
				return fmt.Errorf("%v after %+v: %v", y, s, err)
			}
		}
		return nil
	})
}
