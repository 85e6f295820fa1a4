package commtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// program is a random sequence of operations, the same on every rank.
func program(seed uint64, c *comm.Comm, length int) []cell {
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := backend.Collectives()
	dts := dtype.All()
	var p []cell
	for range length {
		dt := dts[rng.IntN(len(dts))]
		rs := reductions(c, dt)
		x := cell{kind: kinds[rng.IntN(len(kinds))], dt: dt, root: rng.IntN(c.Size()), into: rng.IntN(2) == 0}
		if x.kind.Operation().Reduces {
			if len(rs) == 0 {
				x.dt, rs = dtype.Float32, reductions(c, dtype.Float32)
			}
			if x.red = rs[rng.IntN(len(rs))]; !x.kind.Operation().Admits(x.red.Kind) {
				x.red = comm.Sum
			}
		}
		switch rng.IntN(4) {
		case 0:
			x.count = rng.IntN(4)
		case 1:
			x.count = rng.IntN(100)
		case 2:
			x.count = rng.IntN(5000)
		default:
			x.count = rng.IntN(40_000)
		}
		p = append(p, x)
	}
	return p
}

// RandomPrograms runs random sequences of operations, with messages and splits in between.
func RandomPrograms(t *testing.T, cfg Config) {
	seeds := testutil.Pick(uint64(1), 4)
	if cfg.long() {
		seeds = 40
	}
	for _, n := range cfg.worlds() {
		for seed := range seeds {
			t.Run(fmt.Sprintf("world=%d/seed=%d", n, seed), func(t *testing.T) {
				w := cfg.open(t, n)
				if w.comms[0].Capabilities().NoOp {
					return
				}
				w.each(func(ctx context.Context, c *comm.Comm) error {
					m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
					group := c
					for i, x := range program(seed, c, 60) {
						if i%13 == 12 { // go on in a group of the same ranks, turned around
							var ranks []int
							for r := range n {
								ranks = append(ranks, n-1-r)
							}
							g, err := c.Split(ctx, ranks, comm.SplitName(fmt.Sprintf("turned.%d", i)))
							if err != nil {
								return err
							}
							if group != c {
								if err := group.Finalize(ctx); err != nil {
									return err
								}
							}
							group = g
							m.c = g
						}
						if i%5 == 4 {
							y := cell{kind: backend.Barrier}
							if err := y.exec(ctx, c, m); err != nil {
								return err
							}
						}
						if err := x.exec(ctx, group, m); err != nil {
							return fmt.Errorf("step %d: %w", i, err)
						}
					}
					if group != c {
						return group.Finalize(ctx)
					}
					return nil
				})
			})
		}
	}
}
