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
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// TestSplitsAtOnce splits several communicators of the same ranks at once, in no
// particular order: the children must not hear each other.
func TestSplitsAtOnce(t *testing.T) {
	const n, parents = 3, 4
	for _, fabric := range []string{"mem", "tcp"} {
		for range 5 {
			comms := over(fabric)(t, n)
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				all := []int{0, 1, 2}
				var list []*comm.Comm
				for range parents {
					p, err := c.Split(ctx, all)
					if err != nil {
						return err
					}
					list = append(list, p)
				}
				errs := make([]error, parents)
				var wg sync.WaitGroup
				for i, p := range list {
					wg.Go(func() {
						child, err := p.Split(ctx, all)
						if err != nil {
							errs[i] = err
							return
						}
						for range 20 {
							v := []float32{float32(i)}
							if err := child.AllReduce(ctx, tensor.Of(v), comm.Sum); err != nil {
								errs[i] = err
								return
							}
							if v[0] != float32(n*i) {
								errs[i] = fmt.Errorf("child %d sums to %v", i, v[0])
								return
							}
						}
						errs[i] = errors.Join(child.Finalize(ctx), p.Finalize(ctx))
					})
				}
				wg.Wait()
				return errors.Join(errs...)
			})
			finalize(t, comms)
			if t.Failed() {
				return
			}
		}
	}
}

// TestDifferentSettings opens a world whose ranks disagree about its settings.
func TestDifferentSettings(t *testing.T) {
	for what, settings := range map[string][2]map[string]string{
		"fabric":      {{"fabric": "mem"}, {"fabric": "tcp"}},
		"mapped":      {{"fabric": "mem"}, {"fabric": "mem", "mapped": "off"}},
		"slots":       {{"fabric": "mem"}, {"fabric": "mem", "slots": "off"}},
		"algorithm":   {{"fabric": "mem", "algorithm": "ring"}, {"fabric": "mem"}},
		"chunk_bytes": {{"fabric": "mem", "chunk_bytes": "4096"}, {"fabric": "mem"}},
	} {
		st := store.NewHash(30 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				c, err := comm.New(ctx, comm.WithRank(r, 2), comm.WithStore(st), comm.WithName("differ"),
					comm.WithHints(settings[r]))
				if err == nil { // settings of operations may be found at the first
					err = c.AllReduce(ctx, tensor.Of([]float32{1}), comm.Sum)
					c.Finalize(ctx)
				}
				if !errors.Is(err, comm.ErrMismatch) {
					t.Errorf("%s, rank %d: %v", what, r, err)
				} else if what == "fabric" && !(strings.Contains(err.Error(), "mem") && strings.Contains(err.Error(), "tcp")) {
					t.Errorf("%s: the error does not state both sides: %v", what, err)
				}
			})
		}
		wg.Wait()
		cancel()
	}
}
