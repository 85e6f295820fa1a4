package mem_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/mem"
)

// Waits of a world of goroutines, for messages and for memory that they share, last as long as
// they should in virtual time, and leave no real time to wait for.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ranks := mem.NewWorld(2)
		spaces := make([]*fabric.Space, 2)
		for r, f := range ranks {
			var err error
			if spaces[r], err = f.(fabric.Sharer).Space(t.Context(), 1, []int{0, 1}, 4096); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		w := fabric.NewWaiter(fabric.NewAbort())
		w.Begin(context.Background(), time.Hour)
		m := &fabric.Msg{Peer: 1, Key: fabric.Key{Comm: 1}}
		m.Reset(w)
		ranks[0].Recv(m)
		if err := ranks[0].Wait(m, w); !errors.Is(err, fabric.ErrTimeout) {
			t.Errorf("a receive without a sender: %v", err)
		}
		ranks[0].Cancel(m)

		// Rank 1 arrives when rank 0 has long been asleep; then it leaves while rank 0 sleeps again.
		var wg sync.WaitGroup
		for r, sp := range spaces {
			wg.Go(func() {
				w := fabric.NewWaiter(fabric.NewAbort())
				for seq := uint64(1); seq <= 2; seq++ {
					if r == 1 {
						time.Sleep(time.Hour)
					}
					if r == 1 && seq == 2 {
						sp.Leave(false, "")
						return
					}
					w.Begin(context.Background(), 3*time.Hour)
					if err := sp.Begin(w, seq, &fabric.Desc{}, fabric.Place{}, fabric.Place{}); err != nil {
						t.Error(err)
					}
					sp.Arrive()
					err := sp.AwaitAll(w, 0)
					var left *fabric.LeftError
					if seq == 1 && err != nil || seq == 2 && !errors.As(err, &left) {
						t.Errorf("operation %d: %v", seq, err)
					}
					sp.End()
				}
			})
		}
		wg.Wait()
		if d := time.Since(begin).Round(time.Minute); d != 3*time.Hour {
			t.Errorf("took %v of virtual time, not 3h", d)
		}
	})
}

// A member that falls asleep after another has arrived with a different operation finds the mismatch all the
// same, although no member will wake it.
func TestMismatchBeforeSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		for r, f := range mem.NewWorld(2) {
			wg.Go(func() {
				sp, err := f.(fabric.Sharer).Space(t.Context(), 1, []int{0, 1}, 4096)
				if err != nil {
					t.Error(err)
					return
				}
				w := fabric.NewWaiter(fabric.NewAbort())
				w.Begin(context.Background(), time.Hour)
				time.Sleep(time.Duration(r) * time.Minute)
				sp.Begin(w, 1, &fabric.Desc{byte(r)}, fabric.Place{}, fabric.Place{})
				sp.Arrive()
				var mm *fabric.MismatchError
				if err := sp.Await(w, 1-r, 2); !errors.As(err, &mm) {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		wg.Wait()
	})
}
