package fault_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fault"
)

// crashes tells of peers that are lost.
type crashes struct {
	fabric.Handler
	lost chan int
}

func (l crashes) PeerLeft(int)                 {}
func (l crashes) PeerLost(peer int, err error) { l.lost <- peer }

// A frozen rank sends nothing until it thaws; it's frozen at the call that was armed for it.
func TestFreeze(t *testing.T) {
	p := newPair(t)
	var frozen atomic.Bool
	p.faults.Arm(2, func() {
		p.faults.Freeze()
		frozen.Store(true)
	})
	in := message(0, 1, make([]byte, 1))
	p.ranks[1].Recv(in)
	sent := make(chan struct{})
	go func() {
		p.faults.Touch()
		if frozen.Load() {
			t.Error("frozen at the first call")
		}
		p.ranks[0].Send(message(1, 1, []byte{7})) // the second
		close(sent)
	}()
	for !frozen.Load() {
		runtime.Gosched()
	}
	select {
	case <-sent:
		t.Error("a frozen rank has sent")
	default:
	}
	if in.Done() {
		t.Error("a message of a frozen rank has arrived")
	}
	p.faults.Thaw()
	<-sent
	w := fabric.NewWaiter(fabric.NewAbort())
	if err := p.ranks[1].Wait(in, w); err != nil {
		t.Error(err)
	}
}

// A killed rank is lost to its peers, and gets no events.
func TestKill(t *testing.T) {
	p := newPair(t)
	l := crashes{lost: make(chan int, 1)}
	p.ranks[1].(fabric.Messenger).Handle(l)
	if !p.faults.Kill(errors.New("crashed")) {
		t.Fatal("mem can't kill a rank")
	}
	if peer := <-l.lost; peer != 0 {
		t.Errorf("rank %d was lost", peer)
	}
	p.faults.Thaw()
}

// A mislabeled message is another operation's to its receiver.
func TestMislabel(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Mislabel, Peer: 1})
	in := message(0, 1, make([]byte, 1))
	in.Key.Class = fabric.Collective
	p.ranks[1].Recv(in)
	out := message(1, 1, []byte{7})
	out.Key.Class = fabric.Collective
	p.ranks[0].Send(out)
	var mm *fabric.MismatchError
	if err := p.ranks[1].Wait(in, fabric.NewWaiter(fabric.NewAbort())); !errors.As(err, &mm) {
		t.Errorf("a mislabeled message: %v", err)
	}
}
