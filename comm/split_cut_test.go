package comm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fault"
)

// late is a fabric whose spaces beyond the first open for the others, but not for this rank, until the context ends.
type late struct {
	fabric.Sharer
	here   bool
	opened int
}

func (s *late) Space(ctx context.Context, id uint32, members []int, stageBytes int) (*fabric.Space, error) {
	space, err := s.Sharer.Space(ctx, id, members, stageBytes)
	if s.opened++; err != nil || !s.here || s.opened == 1 {
		return space, err
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

var lateLinks sync.Map // *fault.Faults by rank

func init() {
	fabric.Register("late", fabric.Driver{Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
		f, err := fabric.Open(ctx, "mem", c)
		if err != nil {
			return nil, err
		}
		wrapped, faults := fault.Wrap(struct {
			fabric.Messenger
			fabric.Placer
			fabric.Sharer
		}{f.(fabric.Messenger), f.(fabric.Placer), &late{Sharer: f.(fabric.Sharer), here: c.Rank == 0 || c.Rank == 3}})
		lateLinks.Store(c.Rank, faults)
		return wrapped, nil
	}})
}

// TestLinkBreaksWhileOthersJoin breaks rank 2's link to rank 1 when both have a new communicator, which ranks 0 and 3
// have not opened yet. Rank 1 can learn of it from these alone, and does so at once.
func TestLinkBreaksWhileOthersJoin(t *testing.T) {
	comms := open(t, 4, func(int) []comm.NewOption { return []comm.NewOption{comm.WithFabric("late")} })
	var wg, opened sync.WaitGroup
	opened.Add(2)
	for r, c := range comms {
		wg.Go(func() {
			child, err := c.Split(context.Background(), []int{0, 1, 2, 3}, comm.SplitTimeout(time.Hour))
			if r == 0 || r == 3 {
				if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != 1 {
					t.Errorf("rank %d: split: %v", r, err)
				}
				return
			}
			opened.Done()
			if err != nil {
				t.Errorf("rank %d: split: %v", r, err)
				return
			}
			opened.Wait()
			if r == 2 {
				faults, _ := lateLinks.Load(2)
				faults.(*fault.Faults).Cut(1, errors.New("the cable was pulled"))
			}
			err = child.Barrier(context.Background())
			if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != 3-r ||
				!strings.Contains(err.Error(), "the cable was pulled") {
				t.Errorf("rank %d: %v", r, err)
			}
			child.Finalize(context.Background())
		})
	}
	wg.Wait()
	for _, c := range comms {
		wg.Go(func() { c.Finalize(context.Background()) })
	}
	wg.Wait()
}
