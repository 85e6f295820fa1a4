package ucx

import (
	"runtime"
	"testing"
)

// TestEarlyOrder has the lower rank's first frame come while this one sends: what is sent meanwhile waits, too, and
// goes after the frames that have waited.
func TestEarlyOrder(t *testing.T) {
	f := &Fabric{rank: 1, size: 2, peers: make([]*peer, 2), early: true}
	f.peers[0] = newPeer(f, 0, &card{}, 1, 2)
	f.ticks.Store(7)
	h := header{key: 2, kind: kindBye}
	frame := make([]byte, headerBytes)
	h.put(frame)
	done := make(chan struct{})
	f.mu.Lock() // as a sender has it
	go func() {
		defer close(done)
		f.handle(frame)
	}()
	for f.peers[0].heard.Load() != 7 {
		runtime.Gosched()
	}
	for range 1000 {
		runtime.Gosched()
		if !f.peers[0].mayWait() {
			t.Fatal("a frame is sent before those that have waited")
		}
	}
	f.mu.Unlock()
	<-done
	if p := f.peers[0]; p.mayWait() || !p.answered {
		t.Error("the first frame had no effect")
	}
	peerNumbers.all.Delete(f.peers[0].number)
}
