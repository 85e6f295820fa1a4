package gloo_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

var rounds = flag.Int("rounds", 0, "how often TestSpeed measures")

// timed is a rank of PyTorch in one or both of two groups that all-reduce in turn; rank 0 writes down how long that
// takes.
const timed = `
import json, os, time
import torch
import torch.distributed as dist
members, rounds = json.loads(os.environ["SPEED"])
dist.init_process_group("gloo")
groups = [dist.new_group(m) for m in members]
took, cpu = [], []
for mebibytes in (1, 4, 16, 64):
    x = torch.ones(mebibytes << 18)
    for _ in range(1 + rounds):
        for group in groups:
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.barrier(group)
                begin, used = time.perf_counter(), time.process_time()
                dist.all_reduce(x, group=group)
                took.append(time.perf_counter() - begin)
                cpu.append(time.process_time() - used)
with open(f"{directory}/{dist.get_rank()}", "w") as f:
    json.dump([took, cpu], f)
dist.barrier()
dist.destroy_process_group()
`

// TestSpeed compares all-reduces of a group that has ranks in Go with those of PyTorch alone, which take turns:
//
//	go test ./comm/gloo -run TestSpeed -v -args -rounds 50
func TestSpeed(t *testing.T) {
	if *rounds == 0 {
		t.Skip("left out: it measures: -args -rounds 50")
	}
	for _, test := range []struct {
		world  string
		groups [2][]int // of PyTorch alone, and of both kinds
	}{{"ppg", [2][]int{{0, 1}, {0, 2}}}, {"ppppgg", [2][]int{{0, 1, 2, 3}, {0, 3, 4, 5}}}} {
		b, err := json.Marshal([]any{test.groups, *rounds})
		if err != nil {
			t.Fatal(err)
		}
		var cpu []float64 // of this process
		j := start(t, test.world, timed, nil, "SPEED="+string(b))
		j.each(func(ctx context.Context, world *comm.Comm) error {
			_, err := world.Split(ctx, nil)
			c, failed := world.Split(ctx, test.groups[1])
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			for mebibytes := 1; mebibytes <= 64; mebibytes *= 4 {
				x := tensor.Must(tensor.Empty(dtype.Float32, mebibytes<<18))
				for range 1 + *rounds {
					err = errors.Join(err, c.Barrier(ctx))
					used := processor()
					err = errors.Join(err, c.AllReduce(ctx, x, comm.Sum))
					if c.Rank() == c.Size()-1 {
						cpu = append(cpu, processor()-used)
					}
				}
			}
			return errors.Join(err, world.Barrier(ctx), c.Finalize(ctx))
		})
		var first, second [2][]float64 // of ranks 0 and 1
		for r, of := range []*[2][]float64{&first, &second} {
			if b, err = os.ReadFile(filepath.Join(j.dir, fmt.Sprint(r))); err == nil {
				err = json.Unmarshal(b, of)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		took := first[0]
		for k := 1; k <= 64; k *= 4 {
			var times [2][]float64
			for i, d := range took[:2*(1+*rounds)] {
				if i > 1 { // the first ones are to warm up
					times[i%2] = append(times[i%2], 1e3*d)
				}
			}
			took = took[2*(1+*rounds):]
			theirs, ours := median(times[0]), median(times[1])
			t.Logf("%d ranks, %2d MiB: %7.2f ms with Go, %7.2f ms in PyTorch alone: %.2f of it", len(test.groups[0]), k, ours,
				theirs, ours/theirs)
			if n := 1 + *rounds; len(test.groups[0]) == 2 {
				t.Logf("processor time of the other rank: %7.2f ms in Go, %7.2f ms in PyTorch",
					1e3*median(cpu[1:n]), 1e3*median(second[1][1:n]))
				cpu, second[1] = cpu[n:], second[1][n:]
			}
		}
	}
}

// processor is the processor time that this process has used.
func processor() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
