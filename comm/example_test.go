package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// inWorld runs f once per rank, each on a goroutine of its own, as a launcher
// runs a program once per rank, and prints what went wrong.
func inWorld(size int, f func(ctx context.Context, c *comm.Comm) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st := store.NewHash(time.Minute)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for rank := range size {
		wg.Go(func() {
			c, err := comm.New(ctx, comm.WithRank(rank, size), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = errors.Join(f(ctx, c), c.Finalize(ctx))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
	}
}

// The program of every rank. Under a launcher (chorus run -n 4, torchrun, mpirun,
// srun) it's one of several; started by itself, as here, it's a world of one.
func Example() {
	ctx := context.Background()
	c, err := comm.New(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)

	x, err := c.Empty(dtype.Float32, 4) // memory that peers on this host can map
	if err != nil {
		fmt.Println(err)
		return
	}
	x.Fill(float32(c.Rank() + 1))
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("rank %d of %d: %v\n", c.Rank(), c.Size(), x.At(0))
	// Output:
	// rank 0 of 1: 1
}

// A world whose ranks are goroutines of one process, over the fabric "mem": for
// tests, and for programs that grow into several processes later.
func ExampleNew_goroutines() {
	st := store.NewHash(time.Minute)
	var wg sync.WaitGroup
	for rank := range 3 {
		wg.Go(func() {
			ctx := context.Background()
			c, err := comm.New(ctx, comm.WithRank(rank, 3), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				fmt.Println(err)
				return
			}
			defer c.Finalize(ctx)
			ranks := []int64{int64(c.Rank())}
			if err := c.AllReduce(ctx, tensor.Of(ranks), comm.Sum); err != nil {
				fmt.Println(err)
			}
			if c.Rank() == 0 {
				fmt.Println("sum of the ranks:", ranks[0])
			}
		})
	}
	wg.Wait()
	// Output:
	// sum of the ranks: 3
}

// An ordinary slice is wrapped without a copy. Into leaves the input as it is.
func ExampleComm_AllReduce() {
	inWorld(4, func(ctx context.Context, c *comm.Comm) error {
		grads := []float32{float32(c.Rank()), 10}
		mean := make([]float32, 2)
		if err := c.AllReduce(ctx, tensor.Of(grads), comm.Avg, comm.Into(tensor.Of(mean))); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Println(grads, "->", mean)
		}
		return nil
	})
	// Output:
	// [3 10] -> [1.5 10]
}

// An asynchronous operation is done when its Work says so. Those of one
// communicator run in the order in which they were issued.
func ExampleAsync() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		layers := [][]float64{{1, 2}, {3}, {4, 5, 6}}
		works := make([]comm.Work, len(layers))
		for i, g := range layers {
			if err := c.AllReduce(ctx, tensor.Of(g), comm.Sum, comm.Async(&works[i]), comm.Timeout(5*time.Second)); err != nil {
				return err
			}
		}
		// ... compute meanwhile ...
		for i := range works {
			if err := works[i].Wait(ctx); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			fmt.Println(layers, works[2].Status())
		}
		return nil
	})
	// Output:
	// [[2 4] [6] [8 10 12]] completed
}

// Data-parallel training: every rank has all parameters and some of the points. The gradients' mean is that of all
// points, and has the same bits on all ranks, so that the parameters stay alike. examples/train does it with a network,
// in buckets.
func Example_dataParallel() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		points := [][2]float64{{1, 5}, {2, 7}, {3, 9}, {4, 11}} // of y = 2x + 3
		params := []float64{float64(c.Rank()), 0}
		if err := c.Broadcast(ctx, tensor.Of(params), 0); err != nil { // they begin alike
			return err
		}
		for range 2000 {
			grads := make([]float64, len(params))
			for i := c.Rank(); i < len(points); i += c.Size() { // this rank's share
				x, y := points[i][0], points[i][1]
				off := params[0]*x + params[1] - y
				grads[0] += off * x
				grads[1] += off
			}
			if err := c.AllReduce(ctx, tensor.Of(grads), comm.Avg); err != nil {
				return err
			}
			for i := range params {
				params[i] -= 0.1 * grads[i]
			}
		}
		if c.Rank() == 1 {
			fmt.Printf("y = %.2fx + %.2f\n", params[0], params[1])
		}
		return nil
	})
	// Output:
	// y = 2.00x + 3.00
}

// A parameter server: rank 0 holds the parameters and takes gradients from whichever worker comes first, so that no
// worker waits for another. examples/paramserver has one that goes on when a worker dies.
func Example_parameterServer() {
	const steps = 3 // of each worker
	inWorld(4, func(ctx context.Context, c *comm.Comm) error {
		params, grads := make([]float64, 2), make([]float64, 2)
		if c.Rank() != 0 {
			for range steps {
				grads[0], grads[1] = 1, float64(c.Rank()) // computed from params
				if err := c.Send(ctx, tensor.Of(grads), 0); err != nil {
					return err
				}
				if err := c.Recv(ctx, tensor.Of(params), 0); err != nil {
					return err
				}
			}
			return nil
		}
		for range steps * (c.Size() - 1) {
			var worker int
			if err := c.Recv(ctx, tensor.Of(grads), comm.AnySource, comm.From(&worker)); err != nil {
				return err
			}
			for i := range params {
				params[i] += grads[i]
			}
			if err := c.Send(ctx, tensor.Of(params), worker); err != nil {
				return err
			}
		}
		fmt.Println(params)
		return nil
	})
	// Output:
	// [9 18]
}

// Rows and columns of a two by two grid: one call makes both rows.
func ExampleComm_Split() {
	inWorld(4, func(ctx context.Context, c *comm.Comm) error {
		first := c.Rank() / 2 * 2
		row, err := c.Split(ctx, []int{first, first + 1})
		if err != nil {
			return err
		}
		defer row.Finalize(ctx)
		x := []int32{int32(c.Rank())}
		if err := row.AllReduce(ctx, tensor.Of(x), comm.Max); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Printf("%s: rank %d of %d is rank %d of %d; the largest is %d\n", row.Name(), c.Rank(), c.Size(), row.Rank(),
				row.Size(), x[0])
		}
		return nil
	})
	// Output:
	// world.2: rank 2 of 4 is rank 0 of 2; the largest is 3
}

func ExampleComm_Send() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 0 {
			return c.Send(ctx, tensor.Of([]int32{7, 8}), 1, comm.Tag(42))
		}
		got, from := make([]int32, 2), 0
		if err := c.Recv(ctx, tensor.Of(got), comm.AnySource, comm.Tag(42), comm.From(&from)); err != nil {
			return err
		}
		fmt.Println(got, "from rank", from)
		return nil
	})
	// Output:
	// [7 8] from rank 0
}

// Everybody passes its number on to the right. The batch posts both transfers
// before it waits for either, so the ring cannot deadlock.
func ExampleBatch() {
	inWorld(3, func(ctx context.Context, c *comm.Comm) error {
		n, me := c.Size(), c.Rank()
		mine, left := []int32{int32(me)}, []int32{-1}
		b := c.Batch()
		b.Send(tensor.Of(mine), (me+1)%n)
		b.Recv(tensor.Of(left), (me+n-1)%n)
		if err := b.Issue(ctx); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println("rank 0 got", left[0])
		}
		return nil
	})
	// Output:
	// rank 0 got 2
}

// Rank 0 writes into rank 1's memory and tells it so; rank 1 calls nothing but
// the wait.
func ExampleWindow() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		mem, err := c.Zeros(dtype.Float32, 6)
		if err != nil {
			return err
		}
		w, err := c.NewWindow(ctx, mem)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := w.Put(ctx, tensor.Of([]float32{1, 2, 3}), comm.Target{Rank: 1, Offset: 2}); err != nil {
				return err
			}
			if err := w.Signal(ctx, 1, 0); err != nil {
				return err
			}
		} else {
			if err := w.WaitSignal(ctx, 0, 0); err != nil {
				return err
			}
			got, err := tensor.Slice[float32](mem)
			if err != nil {
				return err
			}
			fmt.Println(got)
		}
		return w.Close(ctx)
	})
	// Output:
	// [0 0 1 2 3 0]
}

// Values that encode travel as they are.
func ExampleObjects() {
	type shard struct {
		Name string
		Rows int
	}
	inWorld(3, func(ctx context.Context, c *comm.Comm) error {
		o := comm.Objects{C: c} // Codec: comm.JSON for ranks that aren't Go
		shards, err := comm.AllGather(ctx, o, shard{fmt.Sprintf("part-%d", c.Rank()), 100 * c.Rank()})
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(shards)
		}
		return nil
	})
	// Output:
	// [{part-0 0} {part-1 100} {part-2 200}]
}

// Hooks see every operation: for logs, measurements, and to refuse some.
func ExampleComm_RegisterCompletionHook() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		hook := c.RegisterCompletionHook(func(op comm.OpInfo, err error) {
			if c.Rank() == 0 {
				fmt.Printf("#%d %v of %d elements: %v\n", op.Seq, op.Kind, op.In.NumEl(), err)
			}
		})
		defer hook.Remove()
		return c.AllReduce(ctx, tensor.Of(make([]float32, 1000)), comm.Sum)
	})
	// Output:
	// #1 all_reduce of 1000 elements: <nil>
}

// A hint chooses an algorithm by name, one of this module's or one that the
// program registered with plan.Register.
func ExampleAlgorithm() {
	inWorld(4, func(ctx context.Context, c *comm.Comm) error {
		hook := c.RegisterCompletionHook(func(op comm.OpInfo, err error) {
			if c.Rank() == 0 {
				fmt.Println(op.Kind, "by", op.Algorithm)
			}
		})
		x := tensor.Of(make([]float32, 1000))
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Algorithm("ring")); err != nil {
			return err
		}
		hook.Remove()
		err := c.AllReduce(ctx, x, comm.Sum, comm.Algorithm("bogus"))
		if c.Rank() == 0 {
			fmt.Println("no such algorithm:", errors.Is(err, comm.ErrInvalidArgument))
		}
		return nil
	})
	// Output:
	// all_reduce by ring
	// no such algorithm: true
}

// Errors are values with what a program needs to react. Here rank 1 calls
// something else than rank 0.
func ExampleMismatchError() {
	inWorld(2, func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of(make([]float32, 8))
		if c.Rank() == 1 {
			x = tensor.Of(make([]float32, 9))
		}
		err := c.AllReduce(ctx, x, comm.Sum)
		if mismatch := (*comm.MismatchError)(nil); errors.As(err, &mismatch) && c.Rank() == 0 {
			fmt.Printf("rank %d: %s\nrank %d: %s\n", mismatch.RankA, mismatch.OpA, mismatch.RankB, mismatch.OpB)
		}
		return nil
	})
	// Output:
	// rank 0: all_reduce(float32[8], sum)
	// rank 1: all_reduce(float32[9], sum)
}
