package comm_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// halting is a fabric whose control payloads wait at a gate.
type halting struct {
	fabric.Messenger
	gate   chan struct{} // nil: open
	closed atomic.Bool
}

func (h *halting) Control(peer int, payload []byte) error {
	if h.gate != nil {
		<-h.gate
	}
	return h.Messenger.Control(peer, payload)
}

func (h *halting) Close(ctx context.Context) error {
	h.closed.Store(true)
	return h.Messenger.Close(ctx)
}

var haltingFabrics sync.Map // by the option "name"

func init() {
	fabric.Register("halting", fabric.Driver{Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
		name := c.Options["name"]
		c.Options = maps.Clone(c.Options)
		delete(c.Options, "name")
		f, err := fabric.Open(ctx, "mem", c)
		if err != nil {
			return nil, err
		}
		h := &halting{Messenger: f.(fabric.Messenger)}
		haltingFabrics.Store(name, h)
		return h, nil
	}})
}

// TestToldBeforeLeaving has a communicator that has broken fail an operation, and finalizes it, while the others are
// being told why, which takes long: they hear it all the same.
func TestToldBeforeLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewHash(0)
		defer st.Close()
		names := []string{"told 0", "told 1"}
		comms := make([]*comm.Comm, 2)
		var wg sync.WaitGroup
		for r := range comms {
			wg.Go(func() {
				c, err := comm.New(t.Context(), comm.WithRank(r, 2), comm.WithStore(st), comm.WithFabric("halting"),
					comm.WithHints(map[string]string{"fabric.name": names[r]}))
				if err != nil {
					t.Error(err)
				}
				comms[r] = c
			})
		}
		if wg.Wait(); t.Failed() {
			return
		}
		v, _ := haltingFabrics.Load(names[1])
		h := v.(*halting)
		h.gate = make(chan struct{})
		wg.Go(func() { comms[1].Abort(errors.New("enough")) })
		synctest.Wait()
		if comms[1].Err() == nil {
			t.Error("not broken yet")
		}
		var failed atomic.Bool
		wg.Go(func() {
			if err := comms[1].Barrier(t.Context()); err == nil {
				t.Error("a broken communicator's barrier returned no error")
			}
			failed.Store(true)
		})
		if synctest.Wait(); failed.Load() {
			t.Error("an operation has failed before the others were told why: its caller may end the process")
		}
		wg.Go(func() { comms[1].Finalize(t.Context()) })
		synctest.Wait()
		if h.closed.Load() {
			t.Error("it has left before it has said why")
		}
		close(h.gate)
		var aborted *comm.AbortedError
		if err := comms[0].Barrier(t.Context()); !errors.As(err, &aborted) || aborted.By != 1 {
			t.Errorf("the other rank: %v", err)
		}
		comms[0].Finalize(t.Context())
		wg.Wait()
	})
}
