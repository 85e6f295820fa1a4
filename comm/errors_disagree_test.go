package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// each runs f on every rank at once, within a generous time.
func each(t *testing.T, comms []*comm.Comm, f func(ctx context.Context, c *comm.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			if err := f(ctx, c); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

func finalize(t *testing.T, comms []*comm.Comm) {
	t.Helper()
	each(t, comms, func(ctx context.Context, c *comm.Comm) error { return c.Finalize(ctx) })
}

func zeros(n int) *tensor.Tensor { return tensor.Must(tensor.Zeros(dtype.Float32, n)) }

// TestMismatchedPrograms has ranks disagree, so that they run different kinds of program: none at
// all, one through flags, one through messages.
func TestMismatchedPrograms(t *testing.T) {
	type step = func(context.Context, *comm.Comm) error
	reduce := func(n int) step {
		return func(ctx context.Context, c *comm.Comm) error { return c.AllReduce(ctx, zeros(n), comm.Sum) }
	}
	shared := func(n int) step {
		return func(ctx context.Context, c *comm.Comm) error {
			return c.AllReduce(ctx, tensor.Must(c.Zeros(dtype.Float32, n)), comm.Sum)
		}
	}
	hinted := func(n int, algorithm string) step {
		return func(ctx context.Context, c *comm.Comm) error {
			return c.AllReduce(ctx, zeros(n), comm.Sum, comm.Algorithm(algorithm))
		}
	}
	gather := func(n int) step {
		return func(ctx context.Context, c *comm.Comm) error {
			return c.AllGatherSingle(ctx, zeros(n*c.Size()), zeros(n))
		}
	}
	for _, x := range []struct {
		name       string
		most, last step
	}{
		{"nothing and little", reduce(0), reduce(8)},
		{"little and nothing", reduce(8), reduce(0)},
		{"nothing and much", reduce(0), reduce(300_000)},
		{"little and much", reduce(8), reduce(300_000)},
		{"much and little", reduce(300_000), reduce(8)},
		{"mapped", shared(8), shared(2_000_000)},
		{"hints", hinted(1000, "ring"), hinted(1000, "doubling")},
		{"messages and flags", hinted(1000, "ring"), reduce(8)},
		{"flags and messages", reduce(8), hinted(1000, "ring")},
		{"other kind", gather(1000), reduce(8)},
	} {
		for _, fabric := range []string{"mem", "shm", "tcp"} {
			t.Run(fabric+"/"+strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				comms := over(fabric)(t, 3)
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					f := x.most
					if c.Rank() == 2 {
						f = x.last
					}
					if err := c.SetTimeout(5 * time.Second); err != nil {
						return err
					}
					err := f(ctx, c)
					for err == nil {
						err = c.Barrier(ctx)
					}
					var mm *comm.MismatchError
					if !errors.As(err, &mm) {
						return fmt.Errorf("not a *MismatchError: %v", err)
					}
					return nil
				})
				finalize(t, comms)
			})
		}
	}
}

// TestDisagreeingSplits lets two ranks differ about how much one sends the other:
// an error that names both, on every rank.
func TestDisagreeingSplits(t *testing.T) {
	for _, x := range []struct{ sent, expected int }{{3, 4}, {4, 3}, {0, 4}, {4, 0}, {300_000, 299_999},
		{262_144, 131_072}, {131_072, 262_144}} {
		for _, fabric := range []string{"mem", "shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/%d-%d", fabric, x.sent, x.expected), func(t *testing.T) {
				t.Parallel()
				comms := over(fabric)(t, 3)
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					in, out := []int{2, 2, 2}, []int{2, 2, 2}
					switch c.Rank() {
					case 0:
						in[2] = x.sent
					case 2:
						out[0] = x.expected
					}
					total := func(s []int) (n int) {
						for _, v := range s {
							n += v
						}
						return n
					}
					c.SetTimeout(5 * time.Second)
					err := c.AllToAllVSingle(ctx, zeros(total(out)), zeros(total(in)), out, in)
					for err == nil {
						err = c.Barrier(ctx)
					}
					var mm *comm.MismatchError
					if !errors.As(err, &mm) {
						return fmt.Errorf("not a *MismatchError: %v", err)
					}
					if mm.RankA != 0 || mm.RankB != 2 {
						return fmt.Errorf("it names ranks %d and %d: %v", mm.RankA, mm.RankB, err)
					}
					for _, s := range []string{fmt.Sprintf("[%d]", x.sent), fmt.Sprintf("[%d]", x.expected)} {
						// Large blocks travel in pieces, and the error is about one of them.
						if max(x.sent, x.expected) < 1000 && !strings.Contains(err.Error(), s) {
							return fmt.Errorf("it does not say %q: %v", s, err)
						}
					}
					return nil
				})
				finalize(t, comms)
			})
		}
	}
}
