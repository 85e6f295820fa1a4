package bench

import (
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
)

// The timed code must not allocate itself. A world of one shows that without peers.
func TestCallsAllocateNothing(t *testing.T) {
	ctx := t.Context()
	c, err := comm.New(ctx, comm.WithRank(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(ctx)
	for _, op := range operations {
		for _, inPlace := range []bool{false, true} {
			if op.leastRanks > 1 || inPlace && !op.inPlace || !inPlace && !op.outOfPlace {
				continue
			}
			s := &setup{ctx: ctx, c: c, red: comm.Sum, inPlace: inPlace, count: 256}
			if s.a, err = c.Zeros(dtype.Float32, s.count); err != nil {
				t.Fatal(err)
			}
			if s.b, err = c.Zeros(dtype.Float32, s.count); err != nil {
				t.Fatal(err)
			}
			rd := op.prepare(s)
			allocs := testing.AllocsPerRun(100, func() {
				if err := rd.call(); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("%s, in place %v: %v allocations", op.name, inPlace, allocs)
			}
		}
	}
}
