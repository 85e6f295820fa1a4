package fault_test

import (
	"errors"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fault"
	"github.com/chorus-comms/chorus/fabric/mem"
)

// slow is a fabric that takes its time: Cancel waits until it's let go on, and Send does nothing before Wait.
type slow struct {
	fabric.Fabric
	canceling, goOn chan struct{}
}

func (s slow) Cancel(m *fabric.Msg) {
	s.canceling <- struct{}{}
	<-s.goOn
	s.Fabric.Cancel(m)
}

func (s slow) Send(m *fabric.Msg) {}

func (s slow) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if m.Done() {
		return m.Err
	}
	s.Fabric.Send(m)
	return s.Fabric.Wait(m, w)
}

func newSlow(t *testing.T, rules ...fault.Rule) (slow, *pair) {
	p := &pair{t: t, ranks: mem.NewWorld(2)}
	s := slow{p.ranks[0], make(chan struct{}), make(chan struct{})}
	p.ranks[0], p.faults = fault.Wrap(s, rules...)
	t.Cleanup(func() {
		for _, f := range p.ranks {
			f.Close(t.Context())
		}
	})
	return s, p
}

// Others can use a rank's fabric while a link of it is being cut; what was posted there is its owner's again only
// afterwards.
func TestCutHoldsNobodyUp(t *testing.T) {
	s, p := newSlow(t)
	in := message(1, 1, make([]byte, 1))
	p.ranks[0].Recv(in)
	cut := make(chan struct{})
	go func() {
		p.faults.Cut(1, errors.New("pulled"))
		close(cut)
	}()
	<-s.canceling
	p.faults.Broken(fault.Drop)
	s.goOn <- struct{}{}
	<-cut
	var lost *fabric.PeerError
	if err := p.ranks[0].Wait(in, fabric.NewWaiter(fabric.NewAbort())); !errors.As(err, &lost) {
		t.Errorf("a receive from a rank that was cut off: %v", err)
	}
}

// A rank that closes has sent what its callers were told was sent.
func TestCloseFinishesAlteredMessages(t *testing.T) {
	_, p := newSlow(t, fault.Rule{Do: fault.Truncate, Peer: 1})
	m := message(1, 1, make([]byte, 8))
	if p.ranks[0].Send(m); !m.Done() {
		t.Fatal("the sender knows of the truncation")
	}
	if err := p.ranks[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := message(0, 1, make([]byte, 8))
	p.ranks[1].Recv(in)
	if err := p.ranks[1].Wait(in, fabric.NewWaiter(fabric.NewAbort())); err != nil || in.N != 4 {
		t.Errorf("received %d bytes, %v", in.N, err)
	}
}

// posting is a fabric whose Recv says when it's called, and posts when it's told to.
type posting struct {
	fabric.Fabric
	called, post, canceled chan struct{}
}

func (p posting) Recv(m *fabric.Msg) {
	close(p.called)
	<-p.post
	p.Fabric.Recv(m)
}

func (p posting) Cancel(m *fabric.Msg) {
	close(p.canceled)
	p.Fabric.Cancel(m)
}

// A link that is cut while a receive is on its way to the fabric ends that receive, too.
func TestCutWhileReceiveIsPosted(t *testing.T) {
	ranks := mem.NewWorld(2)
	inner := posting{ranks[0], make(chan struct{}), make(chan struct{}), make(chan struct{})}
	f, faults := fault.Wrap(inner)
	in := message(1, 1, make([]byte, 1))
	received := make(chan struct{})
	go func() {
		f.Recv(in)
		close(received)
	}()
	<-inner.called
	cut := make(chan struct{})
	go func() {
		faults.Cut(1, errors.New("pulled"))
		close(cut)
	}()
	select {
	case <-cut:
	case <-inner.canceled: // of what is not there yet
	}
	close(inner.post)
	<-received
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(t.Context(), time.Second)
	var lost *fabric.PeerError
	if err := f.Wait(in, w); !errors.As(err, &lost) {
		t.Errorf("a receive from a rank that was cut off: %v", err)
	}
	for _, f := range ranks {
		f.Close(t.Context())
	}
	<-cut
}
