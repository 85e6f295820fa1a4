package comm_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// Results that are larger than the caches are written with stores that bypass them, here in pieces of uneven sizes
// and at odd addresses. Every byte must be written, and none beyond, in the first operation and in one that finds
// the results of the one before.
func TestOutgrownResults(t *testing.T) {
	const n = 7<<20 + 4099 // bytes of a block: two ranks touch 42 MiB by an all-gather, 56 by an all-to-all
	pattern := make([]byte, n+1000)
	for i := range pattern {
		pattern[i] = byte(i + i>>8 + i>>17)
	}
	block := func(from, to, turn int) []byte { return pattern[from*101+to*37+turn*11:][:n] }
	for _, world := range []int{2, 3} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			comms := over("shm")(t, world)
			defer finalize(t, comms)
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				in, out := make([]byte, n*world), make([]byte, n*world+2)
				result := out[1 : 1+n*world]
				check := func(op string, to, turn int) error {
					for r := range world {
						if !bytes.Equal(result[n*r:][:n], block(r, to, turn)) {
							return fmt.Errorf("%s %d: wrong bytes from rank %d", op, turn, r)
						}
					}
					if out[0] != 0 || out[1+n*world] != 0 {
						return fmt.Errorf("%s %d: bytes beyond the result", op, turn)
					}
					return nil
				}
				for turn := range 2 {
					for to := range world {
						copy(in[n*to:], block(c.Rank(), to, turn))
					}
					if err := c.AllToAllSingle(ctx, tensor.Of(result), tensor.Of(in)); err != nil {
						return err
					}
					if err := check("all-to-all", c.Rank(), turn); err != nil {
						return err
					}
					if err := c.AllGatherSingle(ctx, tensor.Of(result), tensor.Of(in[:n])); err != nil {
						return err
					}
					if err := check("all-gather", 0, turn); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
