//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// callList has the calls of the library by rank 0, beside groups.
type callList struct {
	sync.Mutex
	names []string
}

func (c *callList) note(call string, rank int) abi.Result {
	c.Lock()
	defer c.Unlock()
	if rank == 0 && !strings.HasPrefix(call, "ncclComm") {
		c.names = append(c.names, call)
	}
	return abi.Success
}

// made returns what was called since the last time.
func (c *callList) made() (names []string) {
	c.Lock()
	defer c.Unlock()
	names, c.names = c.names, nil
	return names
}

// listed are the ways in which the tensors of a list lie.
var listed = []struct {
	name  string
	sizes [2]int // 0: both have the rank's
	apart bool
}{{"one behind the other", [2]int{1000, 1000}, false}, {"apart", [2]int{1000, 1000}, true}, {"uneven", [2]int{1000, 10}, true}}

// A collective of a list is one call of the library, and not one for each rank, if the tensors have one size. Memory
// that a graph of others uses for it is given to no other operation.
func TestLists(t *testing.T) {
	for _, version := range []string{"2.19", "2.32"} {
		for _, captured := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, captured %v", version, captured), func(t *testing.T) { lists(t, version, captured) })
		}
	}
}

func lists(t *testing.T, version string, captured bool) {
	sim, err := gputest.New(gputest.Options{Name: "cuda", MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var seen callList
	name := fmt.Sprintf("cuda_lists_%d", time.Now().UnixNano())
	supplyWith(t, sim, "cuda", name, nccltest.Options{Version: version, Fail: seen.note})
	gpus, st := devices(t, name), store.NewHash(time.Minute)
	defer st.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(gpus))
	for me := range gpus {
		wg.Go(func() {
			c, err := comm.New(ctx, comm.WithBackend("nccl"), comm.WithDevice(gpus[me].Name()), comm.WithRank(me, len(gpus)),
				comm.WithStore(st), comm.WithTimeout(20*time.Second), comm.WithHints(map[string]string{"library": "for " + name}))
			if err == nil {
				err = listsOf(ctx, sim, c, gpus[me], captured, &seen)
			}
			errs[me] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func listsOf(ctx context.Context, sim *gputest.Library, c *comm.Comm, gpu *device.Device, captured bool,
	seen *callList) error {
	me, theirs := c.Rank(), sim.Driver()
	h, err := theirs.StreamCreate(me, 0)
	if err != nil {
		return err
	}
	s, release, err := gpu.Adopt(h)
	if err != nil {
		return err
	}
	defer release()
	ctx = device.WithStream(ctx, s)
	// A call, perhaps as that of a graph which runs twice, and with work of others' in between.
	run := func(f func() error) error {
		if !captured {
			return errors.Join(f(), s.Synchronize(ctx))
		}
		err := theirs.CaptureBegin(h)
		if err == nil {
			err = f()
		}
		g, end := theirs.CaptureEnd(h)
		if err := errors.Join(err, end); err != nil {
			return err
		}
		x, err := theirs.Instantiate(g)
		if err != nil {
			return err
		}
		for range 2 {
			other, e := tensor.ZerosOn(ctx, gpu, dtype.Uint8, 8000)
			err = errors.Join(err, e, theirs.GraphLaunch(x, h), s.Synchronize(ctx))
			if got, e := other.To(ctx, nil); e != nil || slices.ContainsFunc(must(tensor.Slice[uint8](got)),
				func(b uint8) bool { return b != 0 }) {
				err = errors.Join(err, e, errors.New("the graph writes into memory of others"))
			}
			other.Free()
		}
		return errors.Join(err, theirs.ExecDestroy(x), theirs.GraphDestroy(g))
	}
	for _, l := range listed {
		all, err := tensor.EmptyOn(ctx, gpu, dtype.Float32, 4000)
		if err != nil {
			return err
		}
		list, from := make([]*tensor.Tensor, 2), 0
		for q := range list {
			list[q] = must(all.Narrow(0, from, l.sizes[q]))
			if from += l.sizes[q]; l.apart {
				from += 500
			}
		}
		one, err := tensor.EmptyOn(ctx, gpu, dtype.Float32, l.sizes[me])
		if err != nil {
			return err
		}
		want := func(what string, call, many string) error {
			if me > 0 {
				return nil
			}
			calls := seen.made()
			if l.sizes[0] == l.sizes[1] && slices.Equal(calls, []string{call}) ||
				l.sizes[0] != l.sizes[1] && slices.Equal(calls, []string{many, many}) {
				return nil
			}
			return fmt.Errorf("%s of tensors that lie %s calls %v", what, l.name, calls)
		}
		holds := func(what string, x *tensor.Tensor, v float64) error {
			got, err := x.To(ctx, nil)
			for i := 0; err == nil && i < got.NumEl(); i++ {
				if got.At(i) != v {
					err = fmt.Errorf("rank %d: %s of tensors that lie %s: element %d is %v, want %v", me, what, l.name, i, got.At(i), v)
				}
			}
			return err
		}
		fill := func(x *tensor.Tensor, v float64) error {
			host := must(tensor.Empty(dtype.Float32, x.NumEl()))
			return errors.Join(host.Fill(v), tensor.Copy(ctx, x, host))
		}
		err = errors.Join(fill(all, -1), fill(one, float64(me+1)), c.Barrier(ctx), s.Synchronize(ctx))
		if me == 0 {
			seen.made()
		}
		gather := func() error {
			if l.sizes[0] != l.sizes[1] {
				return c.AllGatherV(ctx, list, one)
			}
			return c.AllGather(ctx, list, one)
		}
		scatter := func() error {
			if l.sizes[0] != l.sizes[1] {
				return c.ReduceScatterV(ctx, one, list, comm.Sum)
			}
			return c.ReduceScatter(ctx, one, list, comm.Sum)
		}
		err = errors.Join(err, run(gather), want("all_gather", "ncclAllGather", "ncclBroadcast"),
			holds("all_gather", list[0], 1), holds("all_gather", list[1], 2))
		err = errors.Join(err, run(scatter), want("reduce_scatter", "ncclReduceScatter", "ncclReduce"),
			holds("reduce_scatter", one, float64(2*(me+1))))
		runtime.KeepAlive(list) // graphs have but its addresses
		if err != nil {
			return err
		}
	}
	return c.Finalize(ctx)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
