package links

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gone is a peer of which an engine has heard that it's lost.
type gone struct {
	rank int
	peer uint32
	err  error
}

// world is n drivers of engines whose links are those of mem.
func world(t *testing.T, n int, p abi.Protocol) ([]*accl.Driver, []*Network, chan gone) {
	ds, nets, lost := make([]*accl.Driver, n), make([]*Network, n), make(chan gone, n*n)
	var cfg accl.Config
	for r := range uint32(n) {
		cfg.Ranks = append(cfg.Ranks, abi.Rank{IP: 0x7F000001, Session: r})
	}
	cfg.RXBufferSize, cfg.MaxEagerSize, cfg.MaxRendezvousSize = 8192, 8192, 1<<16
	for r, fab := range mem.NewWorld(n) {
		nets[r] = New(fab)
		e := engine.New(engine.Config{Session: uint32(r), Protocol: p, Network: nets[r]})
		nets[r].Serve(e, func(peer uint32, err error) { lost <- gone{r, peer, err} })
		cfg.Local = r
		var err error
		if ds[r], err = accl.New(t.Context(), accl.InProcess(e), cfg); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for r := range n {
			nets[r].Close(context.Background())
			ds[r].Close()
		}
	})
	return ds, nets, lost
}

// TestCalls makes calls whose messages fit behind a header, don't, and go into memory.
func TestCalls(t *testing.T) {
	for _, p := range []abi.Protocol{abi.TCP, abi.RDMA} {
		ds, _, _ := world(t, 3, p)
		for _, count := range []int{4, 1500, 30_000} {
			var wg sync.WaitGroup
			for _, d := range ds {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					a, err := d.Buffer(3*count, abi.Int32)
					b, err2 := d.Buffer(3*count, abi.Int32)
					for i := range accl.Elements[int32](a) {
						accl.Elements[int32](a)[i] = int32(1000*d.Rank() + i)
					}
					err = errors.Join(err, err2, d.Allreduce(ctx, abi.Sum, a, b, 3*count))
					for i, x := range accl.Elements[int32](b) {
						if x != int32(3000+3*i) {
							t.Errorf("%v: sum %d is %d; %v", p, i, x, err)
							return
						}
					}
					var self *accl.Request
					err = errors.Join(err, d.Send(ctx, a, 3*count, d.Rank(), accl.Async(&self)),
						d.Recv(ctx, b, 3*count, d.Rank()), self.Wait(ctx))
					if !slices.Equal(a.Bytes(), b.Bytes()) {
						t.Errorf("%v: other data of itself; %v", p, err)
						return
					}
					err = errors.Join(err, d.Alltoall(ctx, a, b, count), d.Barrier(ctx))
					for i, x := range accl.Elements[int32](b) {
						if x != int32(1000*(i/count)+d.Rank()*count+i%count) {
							t.Errorf("%v: element %d of all to all is %d; %v", p, i, x, err)
							return
						}
					}
					if err != nil {
						t.Errorf("%v: rank %d: %v", p, d.Rank(), err)
					}
				})
			}
			wg.Wait()
		}
	}
}

// TestLost tells engines of those that leave, and of those that die.
func TestLost(t *testing.T) {
	_, nets, lost := world(t, 3, abi.RDMA)
	nets[1].Close(t.Context())
	nets[2].fab.(*mem.Rank).Kill(errors.New("its card fell out"))
	var heard []gone
	has := func(rank int, peer uint32, left bool) bool {
		return slices.ContainsFunc(heard, func(g gone) bool {
			return g.rank == rank && g.peer == peer && errors.Is(g.err, fabric.ErrLeft) == left
		})
	}
	for !has(0, 1, true) || !has(0, 2, false) {
		select {
		case g := <-lost:
			heard = append(heard, g)
		case <-time.After(10 * time.Second):
			t.Fatalf("they heard %v", heard)
		}
	}
	if err := nets[0].Send(2, &abi.Header{}, nil); err == nil {
		t.Error("a message to one who is lost")
	}
	if err := nets[0].Send(7, &abi.Header{}, nil); err == nil {
		t.Error("a message to nobody")
	}
}
