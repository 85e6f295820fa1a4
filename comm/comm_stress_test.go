package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

func init() { programs["random"] = randomRank }

// A walk is a random sequence of operations that checks its results. Ranks that
// have the same seed take the same steps.
type walk struct {
	c      *comm.Comm
	rng    *rand.Rand
	tensor []*tensor.Tensor // to be freed after the step
}

func newWalk(c *comm.Comm, seed uint64) *walk {
	return &walk{c: c, rng: rand.New(rand.NewPCG(seed, 0))}
}

// vector is a tensor of int32 and its elements.
func (w *walk) vector(shared bool, n int, f func(i int) int32) (*tensor.Tensor, []int32) {
	t := tensor.Must(tensor.Empty(dtype.Int32, n))
	if shared {
		t = tensor.Must(w.c.Empty(dtype.Int32, n))
	}
	w.tensor = append(w.tensor, t)
	v, err := tensor.Slice[int32](t)
	if err != nil {
		panic(err)
	}
	for i := range v {
		v[i] = f(i)
	}
	return t, v
}

// step takes the next step.
func (w *walk) step(ctx context.Context) error {
	defer func() {
		for _, t := range w.tensor {
			t.Free()
		}
		w.tensor = w.tensor[:0]
	}()
	c, n, me := w.c, w.c.Size(), w.c.Rank()
	count := []int{1, 7, 300, 5000, 60_000}[w.rng.IntN(5)]
	salt, root, shared, kind := w.rng.IntN(1000), w.rng.IntN(n), w.rng.IntN(2) == 0, w.rng.IntN(9)
	value := func(r, i int) int32 { return int32((r+1)*(i%97) + salt) }
	total := func(i int) int32 { return int32(n*(n+1)/2*(i%97) + n*salt) }
	mine := func(i int) int32 { return value(me, i) }
	none := func(int) int32 { return -1 }
	check := func(what string, got []int32, want func(i int) int32) error {
		for i, x := range got {
			if x != want(i) {
				return fmt.Errorf("%s of %d: element %d of %d is %d, want %d", what, count, i, len(got), x, want(i))
			}
		}
		return nil
	}
	var err error
	switch kind {
	case 0:
		x, v := w.vector(shared, count, mine)
		if err = c.AllReduce(ctx, x, comm.Sum); err == nil {
			err = check("all_reduce", v, total)
		}
	case 1:
		x, v := w.vector(shared, count, mine)
		if err = c.Broadcast(ctx, x, root); err == nil {
			err = check("broadcast", v, func(i int) int32 { return value(root, i) })
		}
	case 2:
		x, _ := w.vector(shared, count, mine)
		y, v := w.vector(shared, n*count, none)
		if err = c.AllGatherSingle(ctx, y, x); err == nil {
			err = check("all_gather", v, func(i int) int32 { return value(i/count, i%count) })
		}
	case 3:
		x, _ := w.vector(shared, n*count, mine)
		y, v := w.vector(shared, count, none)
		if err = c.ReduceScatterSingle(ctx, y, x, comm.Sum); err == nil {
			err = check("reduce_scatter", v, func(i int) int32 { return total(me*count + i) })
		}
	case 4:
		x, _ := w.vector(shared, n*count, mine)
		y, v := w.vector(shared, n*count, none)
		if err = c.AllToAllSingle(ctx, y, x); err == nil {
			err = check("all_to_all", v, func(i int) int32 { return value(i/count, me*count+i%count) })
		}
	case 5:
		x, v := w.vector(shared, count, mine)
		want := mine
		if me == root {
			want = total
		}
		if err = c.Reduce(ctx, x, root, comm.Sum); err == nil {
			err = check("reduce", v, want)
		}
	case 6:
		err = c.Barrier(ctx)
	case 7:
		x, _ := w.vector(shared, count, mine)
		y, v := w.vector(shared, count, none)
		left := (me + n - 1) % n
		b := c.Batch()
		b.Send(x, (me+1)%n, comm.Tag(salt))
		b.Recv(y, left, comm.Tag(salt))
		if err = b.Issue(ctx); err == nil {
			err = check("message", v, func(i int) int32 { return value(left, i) })
		}
	case 8: // several under way at once
		var works [6]comm.Work
		var vs [len(works)][]int32
		for k := range works {
			var x *tensor.Tensor
			x, vs[k] = w.vector(shared, count, mine)
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&works[k])); err != nil {
				return err
			}
		}
		for k := range works {
			// The tensors are the operation's until it's done, so nothing may be freed before.
			err = errors.Join(err, works[k].Wait(context.WithoutCancel(ctx)))
		}
		for k := 0; k < len(vs) && err == nil; k++ {
			err = check("asynchronous all_reduce", vs[k], total)
		}
	}
	return err
}

func (w *walk) steps(ctx context.Context, n int) error {
	for i := range n {
		if err := w.step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// TestStress uses one communicator from many goroutines of each rank at once,
// together with others that were split from it.
func TestStress(t *testing.T) {
	steps := testutil.Pick(50, 200)
	if commtest.Long() {
		steps = 2000
	}
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			comms := over(fabric)(t, 4)
			errs := make([]error, len(comms))
			var wg sync.WaitGroup
			for r, c := range comms {
				wg.Go(func() { errs[r] = stress(c, steps) })
			}
			wg.Wait()
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

func stress(c *comm.Comm, steps int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	me := c.Rank()
	turned, err := c.Split(ctx, []int{3, 2, 1, 0}, comm.SplitName("turned"))
	if err != nil {
		return err
	}
	pair, err := c.Split(ctx, []int{me / 2 * 2, me/2*2 + 1})
	if err != nil {
		return err
	}
	mine := tensor.Must(turned.Zeros(dtype.Int64, turned.Size()))
	defer mine.Free()
	window, err := turned.NewWindow(ctx, mine)
	if err != nil {
		return err
	}
	tasks := map[string]func() error{
		"collectives":      func() error { return newWalk(c, 1).steps(ctx, steps) },
		"turned":           func() error { return newWalk(turned, 2).steps(ctx, steps) },
		"pair":             func() error { return newWalk(pair, 3).steps(ctx, steps) },
		"cancelled":        func() error { return cancelled(ctx, c, steps) },
		"any source":       func() error { return fromAnywhere(ctx, c, steps) },
		"settings":         func() error { return settings(c, steps) },
		"window":           func() error { return signals(ctx, turned, window, mine, steps) },
		"messages, tag 1":  func() error { return around(ctx, c, steps, 10_001, 1) },
		"messages, tag 2":  func() error { return around(ctx, c, steps, 10_002, 1000) },
		"messages, tag 3":  func() error { return around(ctx, c, steps, 10_003, 50_000) },
		"messages of pair": func() error { return around(ctx, pair, steps, 10_003, 50_000) },
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, task := range tasks {
		wg.Go(func() {
			if terr := task(); terr != nil {
				mu.Lock()
				defer mu.Unlock()
				err = errors.Join(err, fmt.Errorf("%s: %w", name, terr))
			}
		})
	}
	wg.Wait()
	return errors.Join(err, window.Close(ctx), pair.Finalize(ctx), turned.Finalize(ctx), c.Finalize(ctx))
}

// around sends numbered messages to the next rank and checks those of the rank before.
func around(ctx context.Context, c *comm.Comm, rounds, tag, count int) error {
	n, me := c.Size(), c.Rank()
	out, in := make([]int64, count), make([]int64, count)
	left := (me + n - 1) % n
	for round := range rounds {
		out[0], out[count-1] = int64(round*n+me), int64(round*n+me)
		var sent comm.Work
		if err := c.Send(ctx, tensor.Of(out), (me+1)%n, comm.Tag(tag), comm.Async(&sent)); err != nil {
			return err
		}
		if err := c.Recv(ctx, tensor.Of(in), left, comm.Tag(tag)); err != nil {
			return err
		}
		if err := sent.Wait(ctx); err != nil {
			return err
		}
		if want := int64(round*n + left); in[0] != want || in[count-1] != want {
			return fmt.Errorf("message %d is %d ... %d, want %d", round, in[0], in[count-1], want)
		}
	}
	return nil
}

// fromAnywhere gets one message from every other rank per round, in any order.
func fromAnywhere(ctx context.Context, c *comm.Comm, rounds int) error {
	const tag = 20_000
	n, me := c.Size(), c.Rank()
	next := make([]int64, n) // message expected from each rank
	for round := range rounds {
		for r := range n {
			if r != me {
				if err := c.Send(ctx, tensor.Of([]int64{int64(round)}), r, comm.Tag(tag)); err != nil {
					return err
				}
			}
		}
		for range n - 1 {
			got, from := []int64{-1}, -1
			if err := c.Recv(ctx, tensor.Of(got), comm.AnySource, comm.Tag(tag), comm.From(&from)); err != nil {
				return err
			}
			if from < 0 || from >= n || from == me || got[0] != next[from] {
				return fmt.Errorf("round %d: message %d from rank %d, want %v", round, got[0], from, next)
			}
			next[from]++
		}
	}
	return nil
}

// cancelled waits for messages that never come, until its context ends, while everything else goes on.
func cancelled(ctx context.Context, c *comm.Comm, rounds int) error {
	for round := range rounds {
		short, cancel := context.WithCancel(ctx)
		var w comm.Work
		if err := c.Recv(short, tensor.Of(make([]int64, 10)), round%c.Size(), comm.Tag(30_000), comm.Async(&w)); err != nil {
			cancel()
			return err
		}
		cancel()
		if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a cancelled receive gives %v", err)
		}
	}
	return nil
}

// settings changes what may be changed at any time; the values are those that ranks need not have in common.
func settings(c *comm.Comm, rounds int) error {
	for round := range rounds {
		if err := c.SetTimeout(time.Minute + time.Duration(round)); err != nil {
			return err
		}
		if err := c.SetHints(map[string]string{"stores": "cached"}); err != nil {
			return err
		}
		hook := c.RegisterCompletionHook(func(comm.OpInfo, error) {})
		if c.Options().Timeout < time.Minute || c.Err() != nil {
			return fmt.Errorf("options %+v, broken by %v", c.Options(), c.Err())
		}
		if err := c.SetHints(nil); err != nil {
			return err
		}
		hook.Remove()
	}
	return nil
}

// signals passes numbers around through a window on mine.
func signals(ctx context.Context, c *comm.Comm, w *comm.Window, mine *tensor.Tensor, rounds int) error {
	n, me := c.Size(), c.Rank()
	left, right := (me+n-1)%n, (me+1)%n
	for round := range rounds {
		if err := w.Put(ctx, tensor.Of([]int64{int64(round)}), comm.Target{Rank: right, Offset: me}); err != nil {
			return err
		}
		if err := w.Signal(ctx, right, 0); err != nil {
			return err
		}
		if err := w.WaitSignal(ctx, left, 0); err != nil {
			return err
		}
		if got := mine.At(left); got != float64(round) {
			return fmt.Errorf("round %d: rank %d put %v", round, left, got)
		}
		if err := w.Signal(ctx, left, 1); err != nil { // it may overwrite it
			return err
		}
		if err := w.WaitSignal(ctx, right, 1); err != nil {
			return err
		}
	}
	return nil
}

// TestCancelInTheMiddle ends the context of one rank's collectives at a random
// moment: every rank learns who gave up and why, and other communicators go on.
func TestCancelInTheMiddle(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			for round := range 5 {
				const n, quitter = 4, 2
				comms := over(fabric)(t, n)
				errs := make([]error, n)
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						errs[r] = func() error {
							ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
							defer cancel()
							defer c.Finalize(ctx)
							other, err := c.Split(ctx, []int{0, 1, 2, 3}, comm.SplitName("other"))
							if err != nil {
								return err
							}
							defer other.Finalize(ctx)
							x := tensor.Must(c.Zeros(dtype.Float32, 100_000))
							defer x.Free()
							reduce := func(ctx context.Context) error { return c.AllReduce(ctx, x, comm.Sum) }
							for i := 0; err == nil; i++ {
								if r == quitter && i == round*3 {
									err = giveUp(ctx, c, reduce)
								} else {
									err = reduce(ctx)
								}
							}
							var aborted *comm.AbortedError
							if !errors.As(err, &aborted) || aborted.By != quitter || !strings.Contains(aborted.Reason, "context") {
								return fmt.Errorf("a cancelled collective gives %v", err)
							}
							return newWalk(other, uint64(round)).steps(ctx, 20)
						}()
					})
				}
				wg.Wait()
				for r, err := range errs {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			}
		})
	}
}

// TestRandomOperationsInProcesses has more processes than many machines have
// cores take the same random steps for some seconds.
func TestRandomOperationsInProcesses(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			cmds, outs := start(t, "random", fabric, 4)
			for r := range cmds {
				if err := cmds[r].Wait(); err != nil || !strings.Contains(outs[r].String(), "ok after") {
					t.Errorf("rank %d: %v\n%s", r, err, outs[r])
				}
			}
			t.Log(outs[0])
		})
	}
}

// randomRank is one of these processes.
func randomRank() error {
	length := testutil.Pick(time.Second/2, 2*time.Second)
	if commtest.Long() {
		length = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), length+time.Minute)
	defer cancel()
	c, err := join(ctx)
	if err != nil {
		return err
	}
	w := newWalk(c, 42)
	end := time.Now().Add(length)
	for done := 0; ; done += 20 {
		more := []int32{0}
		if time.Now().Before(end) {
			more[0] = 1
		}
		if err := c.Broadcast(ctx, tensor.Of(more), 0); err != nil { // rank 0's clock counts
			return err
		}
		if more[0] == 0 {
			fmt.Println("ok after", done, "steps")
			return c.Finalize(ctx)
		}
		if err := w.steps(ctx, 20); err != nil {
			return fmt.Errorf("after %d steps: %w", done, err)
		}
		if done%500 == 480 { // go on in a communicator of the same ranks, turned by one
			var ranks []int
			for r := range c.Size() {
				ranks = append(ranks, (r+1)%c.Size())
			}
			next, err := c.Split(ctx, ranks, comm.SplitName(fmt.Sprint("turned.", done)))
			if err != nil {
				return err
			}
			if err := c.Finalize(ctx); err != nil {
				return err
			}
			c, w.c = next, next
		}
	}
}
