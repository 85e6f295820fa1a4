package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// One rank calls a broadcast, in which it waits for no other, and goes on. The others call an all-to-all and wait for
// its messages. The rank finds the mismatch at once in its next operation, although it gets no message, and the
// others don't look at its flag.
func TestMismatchOfRanksThatWaitApart(t *testing.T) {
	for _, fabric := range []string{"mem", "shm"} {
		t.Run(fabric, func(t *testing.T) {
			comms := over(fabric)(t, 3)
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for r, c := range comms {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
					defer cancel()
					if r == 2 {
						x := tensor.Must(tensor.Zeros(dtype.Int32, 5))
						if errs[r] = c.Broadcast(ctx, x, r); errs[r] == nil {
							errs[r] = c.Barrier(ctx)
						}
						return
					}
					var ins, outs []*tensor.Tensor
					for range 3 {
						ins, outs = append(ins, tensor.Must(tensor.Zeros(dtype.Float64, 21))),
							append(outs, tensor.Must(tensor.Zeros(dtype.Float64, 21)))
					}
					errs[r] = c.AllToAll(ctx, outs, ins)
				})
			}
			wg.Wait()
			for r, err := range errs {
				var mm *comm.MismatchError
				if !errors.As(err, &mm) || mm.RankB != 2 {
					t.Errorf("rank %d: %v", r, err)
				}
				comms[r].Finalize(context.Background())
			}
		})
	}
}

// Ranks on different hosts wait for messages, and none arrives that shows the mismatch. In one case each of two ranks
// waits for the other's broadcast. In another a rank waits for the broadcast of a rank that called a gather, sent its
// part to the root, and computes since. They find the mismatch by telling each other their operations, long before
// their deadlines, however late one of them comes.
func TestMismatchWithoutAMessage(t *testing.T) {
	x := tensor.Of([]int32{1})
	call := map[string]func(c *comm.Comm) error{
		"each other's": func(c *comm.Comm) error { return c.Broadcast(context.Background(), x, 1-c.Rank()) },
		"one is late": func(c *comm.Comm) error {
			time.Sleep(time.Duration(c.Rank()) * 10 * time.Second)
			return c.Broadcast(context.Background(), x, 1-c.Rank())
		},
		"one went on": func(c *comm.Comm) error {
			switch ctx := context.Background(); c.Rank() {
			case 2:
				return c.Broadcast(ctx, x, 1)
			case 1:
				err := c.Gather(ctx, nil, x, 0)
				time.Sleep(30 * time.Second)
				return errors.Join(err, c.Barrier(ctx))
			default:
				return c.Gather(ctx, []*tensor.Tensor{tensor.Of([]int32{0}), tensor.Of([]int32{0}), tensor.Of([]int32{0})}, x, 0)
			}
		},
	}
	for name, size := range map[string]int{"each other's": 2, "one is late": 2, "one went on": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // so that times don't depend on the machine
				comms, began := hostEach(t, size), time.Now()
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						err := call[name](c)
						if !errors.Is(err, comm.ErrMismatch) {
							t.Errorf("rank %d: %v", r, err)
						}
						if took := time.Since(began); took > 35*time.Second {
							t.Errorf("rank %d found out after %v: %v", r, took, err)
						}
						c.Finalize(context.Background())
					})
				}
				wg.Wait()
			})
		})
	}
}

// hostEach opens a world whose ranks are each on a host of their own.
func hostEach(t *testing.T, size int) []*comm.Comm {
	return open(t, size, func(r int) []comm.NewOption {
		return []comm.NewOption{comm.WithFabric("mem"), comm.WithHints(map[string]string{"host_id": fmt.Sprint(r)})}
	})
}

// A rank has finished five operations in which it waits for no other, when a rank on another host times out in a
// different first operation. Asked about that one, the first rank still knows what it was.
func TestMismatchOfARankThatHasGoneOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := hostEach(t, 2)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, none := context.Background(), tensor.Of([]int32{})
			for range 5 {
				if errs[0] = comms[0].AllGatherSingle(ctx, none, none); errs[0] != nil {
					return
				}
			}
			errs[0] = comms[0].Barrier(ctx, comm.Timeout(time.Hour))
		})
		wg.Go(func() {
			errs[1] = comms[1].Broadcast(context.Background(), tensor.Of([]int32{1}), 0, comm.Timeout(fabric.SlowAfter/2))
		})
		wg.Wait()
		for r, err := range errs {
			var mm *comm.MismatchError
			if !errors.As(err, &mm) || mm.Seq != 1 || mm.Op != "broadcast" {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		for _, c := range comms {
			wg.Go(func() { c.Finalize(context.Background()) })
		}
		wg.Wait()
	})
}

// A rank waits for the broadcast of one that took the operation for a reduction, sent its part to the root and left: it
// isn't lost, says the root, which times out as well.
func TestMismatchOfARankThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := hostEach(t, 3)
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() {
				ctx, x := context.Background(), tensor.Of([]int32{1})
				if r == 2 {
					errs[r] = c.Broadcast(ctx, x, 1)
				} else {
					errs[r] = c.Reduce(ctx, x, 0, comm.Sum)
				}
				c.Finalize(ctx)
			})
		}
		wg.Wait()
		if errs[1] != nil {
			t.Errorf("rank 1: %v", errs[1])
		}
		for _, r := range []int{0, 2} {
			var mm *comm.MismatchError
			if !errors.As(errs[r], &mm) || mm.RankA != 0 || mm.RankB != 2 {
				t.Errorf("rank %d: %v", r, errs[r])
			}
		}
	})
}

// A rank that has left after an operation has been in it, and is not the one for which the others wait: here a
// message that's lost.
func TestTimeoutNamesNobodyWhoHasLeftAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := open(t, 3, func(r int) []comm.NewOption {
			hints := map[string]string{"host_id": fmt.Sprint(r), "fabric.inner": "mem"}
			if r == 2 {
				hints["fabric.script"] = "drop peer=0 class=collective"
			}
			return []comm.NewOption{comm.WithFabric("fault"), comm.WithHints(hints)}
		})
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() {
				errs[r] = c.Barrier(context.Background())
				c.Finalize(context.Background())
			})
		}
		wg.Wait()
		if errs[1] != nil {
			t.Errorf("rank 1: %v", errs[1])
		}
		for _, r := range []int{0, 2} {
			var late *comm.TimeoutError
			if !errors.As(errs[r], &late) || len(late.Missing)+len(late.Unknown) > 0 || len(late.Arrived) != 3 {
				t.Errorf("rank %d: %v", r, errs[r])
			}
		}
	})
}

// Ranks share memory. Two of them call a large broadcast. The third doesn't receive it: it calls a small broadcast
// of its own, in which it waits for no other and sends nothing, and computes since. The root of the large one,
// whose message isn't received, sees at the third rank's flag which operation that is in, long before the deadline.
func TestMismatchOfARankThatTakesNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := open(t, 3, func(r int) []comm.NewOption {
			return []comm.NewOption{comm.WithFabric("mem"), comm.WithHints(map[string]string{"stage_bytes": "4096",
				"fabric.buffer": "64", "fabric.wait": "block"})}
		})
		began := time.Now()
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() {
				ctx, x, root := context.Background(), tensor.Must(tensor.Zeros(dtype.Int32, 569)), 1
				if r == 2 {
					x, root = tensor.Must(tensor.Zeros(dtype.Int32, 5)), 2
				}
				err := c.Broadcast(ctx, x, root)
				if r == 1 && (!errors.Is(err, comm.ErrMismatch) || time.Since(began) > 2*fabric.SlowAfter) {
					t.Errorf("the root, after %v: %v", time.Since(began), err)
				}
				time.Sleep(time.Minute)
				if err := c.Barrier(ctx); !errors.Is(err, comm.ErrMismatch) {
					t.Errorf("rank %d: %v", r, err)
				}
				c.Finalize(ctx)
			})
		}
		wg.Wait()
	})
}

// A receive from any rank ends when no rank is left that could send, and its error says so. It doesn't know which
// rank was to send.
func TestReceiveFromAnyWhenAllHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms := hostEach(t, 4)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() {
				ctx := context.Background()
				if r > 0 {
					time.Sleep(time.Duration(10-r) * time.Second) // the last rank leaves first
					c.Finalize(ctx)
					return
				}
				err := c.Recv(ctx, tensor.Of([]int32{0}), comm.AnySource)
				var lost *comm.PeerLostError
				if !errors.As(err, &lost) || lost.Peer != 3 || lost.Cause != "it has closed its end, and no other rank is left" {
					t.Errorf("received from nobody: %v", err)
				}
				c.Finalize(ctx)
			})
		}
		wg.Wait()
	})
}
