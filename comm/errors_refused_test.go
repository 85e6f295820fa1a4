package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// refusals are calls that only the rank which makes them can know to be wrong.
var refusals = []struct {
	name string
	say  string
	good func(ctx context.Context, c *comm.Comm, opts ...comm.Option) error
	bad  func(ctx context.Context, c *comm.Comm) error
}{
	{"all_reduce", "all_reduce: the output has 5 elements", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		return c.AllReduce(ctx, zeros(4), comm.Sum, comm.Into(zeros(5)))
	}},
	{"issued", "all_reduce: output is of dtype int32", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		return c.AllReduce(ctx, zeros(4), comm.Sum, comm.Into(tensor.Of(make([]int32, 4))), comm.Async(new(comm.Work)))
	}},
	{"algorithm", "no-such", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		return c.AllReduce(ctx, zeros(4), comm.Sum, comm.Algorithm("no-such"))
	}},
	{"context", "all_reduce: its context had ended", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return c.AllReduce(ended, zeros(4), comm.Sum)
	}},
	{"hook", "all_reduce: not now", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		defer c.RegisterPreHook(func(comm.OpInfo) error { return errors.New("not now") }).Remove()
		return reduceFour(ctx, c)
	}},
	{"work", "still under way", reduceFour, func(ctx context.Context, c *comm.Comm) error {
		given, cancel := context.WithCancel(ctx)
		var w comm.Work
		if err := c.Recv(given, zeros(1), 0, comm.Async(&w)); err != nil {
			panic(err)
		}
		err := reduceFour(ctx, c, comm.Async(&w))
		cancel()
		_ = w.Wait(ctx)
		return err
	}},
	{"split", "split: rank 1 is listed twice", func(ctx context.Context, c *comm.Comm, opts ...comm.Option) error {
		g, err := c.Split(ctx, []int{0, 1})
		if err != nil {
			return err
		}
		return g.Finalize(ctx)
	}, func(ctx context.Context, c *comm.Comm) error {
		_, err := c.Split(ctx, []int{0, 1, 1})
		return err
	}},
}

func reduceFour(ctx context.Context, c *comm.Comm, opts ...comm.Option) error {
	return c.AllReduce(ctx, zeros(4), comm.Sum, opts...)
}

// TestRefusalIsNamed refuses a call on one rank: the other's timeout says so, unless the
// call is corrected in time, and then nothing has happened.
func TestRefusalIsNamed(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		for _, x := range refusals {
			t.Run(fabric+"/"+x.name, func(t *testing.T) {
				t.Parallel()
				comms := over(fabric)(t, 2)
				refused := make(chan struct{})
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					if c.Rank() == 0 {
						if err := x.good(ctx, c); err != nil {
							return err
						}
						<-refused
						if err := c.SetTimeout(100 * time.Millisecond); err != nil {
							return err
						}
						var to *comm.TimeoutError
						if err := x.good(ctx, c); !errors.As(err, &to) || !strings.Contains(to.Refused[1], x.say) ||
							!strings.Contains(err.Error(), x.say) {
							return fmt.Errorf("the error does not say %q: %v", x.say, err)
						}
						return nil
					}
					if err := x.bad(ctx, c); err == nil {
						return errors.New("no error")
					}
					if err := x.good(ctx, c); err != nil {
						return fmt.Errorf("corrected: %w", err)
					}
					if err := x.bad(ctx, c); err == nil {
						return errors.New("no error")
					}
					close(refused)
					<-c.Broken()
					var to *comm.TimeoutError
					if err := c.Err(); !errors.As(err, &to) || !strings.Contains(to.Refused[1], x.say) {
						return fmt.Errorf("the refusing rank hears %v", err)
					}
					return nil
				})
				finalize(t, comms)
			})
		}
	}
}

// TestRefusedHasNoNumber aborts a communicator between operations: the next one never came to be, so that its error has
// no sequence number, not that of the one before.
func TestRefusedHasNoNumber(t *testing.T) {
	comms := over("mem")(t, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		var all error
		for range 3 {
			all = errors.Join(all, reduceFour(ctx, c))
		}
		return all
	})
	comms[1].Abort(errors.New("enough"))
	<-comms[0].Broken()
	for _, c := range comms {
		err := reduceFour(context.Background(), c)
		var aborted *comm.AbortedError
		if !errors.As(err, &aborted) || aborted.Op != "all_reduce" || aborted.Seq != 0 {
			t.Errorf("%v (%+v), want an all_reduce without a number that was aborted", err, aborted)
		}
	}
	finalize(t, comms)
}
