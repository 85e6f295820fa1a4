package transport

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestPeers(t *testing.T) {
	type link struct {
		rank  int
		ended bool
	}
	var x Peers[link]
	if x.To(0) != nil || x.Made(0) != nil || x.All() != nil {
		t.Error("links before Init")
	}
	var made atomic.Int32
	x.Init(5, func(rank int) *link {
		if rank == 1 {
			return nil
		}
		made.Add(1)
		return &link{rank: rank}
	})
	for _, none := range []int{-1, 1, 5} {
		if x.To(none) != nil || x.Made(none) != nil {
			t.Errorf("a link to rank %d", none)
		}
	}
	if x.Made(2) != nil || len(x.All()) != 0 {
		t.Error("links that were not used")
	}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for _, r := range []int{4, 2, 0} {
				if p := x.To(r); p.rank != r || x.Made(r) != p {
					t.Errorf("the link to rank %d is that to rank %d", r, p.rank)
				}
			}
		})
	}
	users.Wait()
	if made.Load() != 3 || len(x.All()) != 3 {
		t.Errorf("%d links were made, %d are listed", made.Load(), len(x.All()))
	}
	if open := x.Close(func(p *link) { p.ended = true }); len(open) != 3 || open[0].ended {
		t.Errorf("closing found %d links", len(open))
	}
	if late := x.To(3); late == nil || !late.ended {
		t.Error("a link that is made after Close isn't ended")
	}
	if x.To(2).ended {
		t.Error("Close has ended a link itself")
	}
}
