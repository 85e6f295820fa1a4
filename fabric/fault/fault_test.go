package fault_test

import (
	"bytes"
	"errors"
	"math/bits"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/fault"
	"github.com/chorus-comms/chorus/fabric/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHarmless holds a fabric with no rules, and one whose messages are all late,
// to the suite.
func TestHarmless(t *testing.T) {
	for name, rules := range map[string][]fault.Rule{
		"no rules": nil,
		"late":     {{Do: fault.Delay, Peer: fabric.AnySource, Delay: 50 * time.Microsecond, Chance: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, func(_ testing.TB, size int) []fabric.Fabric {
				ranks := mem.NewWorld(size)
				for r := range ranks {
					ranks[r], _ = fault.Wrap(ranks[r], rules...)
				}
				return ranks
			}, fabrictest.Large(1<<20), fabrictest.Skip("NoAllocations"))
		})
	}
}

// pair is a world of two whose rank 0 is wrapped.
type pair struct {
	t      *testing.T
	ranks  []fabric.Fabric
	faults *fault.Faults
}

func newPair(t *testing.T, rules ...fault.Rule) *pair {
	p := &pair{t: t, ranks: mem.NewWorld(2)}
	p.ranks[0], p.faults = fault.Wrap(p.ranks[0], rules...)
	t.Cleanup(func() {
		for _, f := range p.ranks {
			f.Close(t.Context())
		}
	})
	return p
}

func message(peer int, tag uint64, buf []byte) *fabric.Msg {
	w := fabric.NewWaiter(fabric.NewAbort())
	m := &fabric.Msg{Peer: peer, Key: fabric.Key{Class: fabric.PointToPoint, Tag: tag},
		Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: len(buf)}
	m.Reset(w)
	return m
}

func wait(f fabric.Fabric, m *fabric.Msg, limit time.Duration) error {
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, limit)
	for !m.Done() { // its own waiter isn't ours: look now and then
		if err := w.Check(); err != nil {
			return err
		}
		time.Sleep(10 * time.Microsecond)
	}
	return f.Wait(m, w)
}

// send sends three messages from the wrapped rank; received returns what arrives.
func (p *pair) send() {
	for i := range 3 {
		m := message(1, 0, bytes.Repeat([]byte{byte(i)}, 8))
		p.ranks[0].Send(m)
		if err := wait(p.ranks[0], m, 20*time.Second); err != nil {
			p.t.Error(err)
		}
	}
}

func (p *pair) received(n int) (all [][]byte) {
	for range n {
		buf := make([]byte, 8)
		m := message(0, 0, buf)
		p.ranks[1].Recv(m)
		if err := wait(p.ranks[1], m, 20*time.Second); err != nil {
			p.t.Error(err)
		}
		all = append(all, buf[:m.N])
	}
	m := message(0, 0, make([]byte, 8))
	p.ranks[1].Recv(m)
	if m.Done() {
		p.t.Errorf("more than %d messages arrived", n)
	}
	p.ranks[1].Cancel(m)
	return all
}

func TestDrop(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Drop, Peer: 1, After: 1, Count: 1})
	p.send()
	if got := p.received(2); got[0][0] != 0 || got[1][0] != 2 {
		t.Errorf("received %v", got)
	}
	if p.faults.Broken(fault.Drop) != 1 {
		t.Errorf("%d dropped", p.faults.Broken(fault.Drop))
	}
}

func TestTruncateCorruptDuplicate(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Truncate, Peer: 1, Count: 1}, fault.Rule{Do: fault.Corrupt,
		Peer: fabric.AnySource, After: 1, Count: 1},
		fault.Rule{Do: fault.Duplicate, Peer: 1, After: 2})
	p.send()
	got := p.received(4)
	flipped := 0
	for _, b := range got[1] {
		flipped += bits.OnesCount8(b ^ 1)
	}
	if len(got[0]) != 4 || flipped != 1 || !bytes.Equal(got[2], got[3]) || got[2][0] != 2 {
		t.Errorf("received %v", got)
	}
}

func TestLaneAndPeer(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Drop, Peer: 1, Classes: fault.On(fabric.Collective)}, fault.Rule{Do: fault.Drop,
		Peer: 0})
	p.send()
	p.received(3)
}

func TestStall(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Stall, Peer: 1, After: 1, Count: 1})
	var ms []*fabric.Msg
	for i := range 3 {
		ms = append(ms, message(1, 0, []byte{byte(i)}))
		p.ranks[0].Send(ms[i])
	}
	p.received(1)
	p.ranks[0].Cancel(ms[1])
	if !errors.Is(ms[1].Err, fabric.ErrCanceled) {
		t.Errorf("canceled in line: %v", ms[1].Err)
	}
	p.faults.Release(1)
	if got := p.received(1); got[0][0] != 2 {
		t.Errorf("after the release: %v", got)
	}
}

type losses struct{ lost []error }

func (l *losses) PeerLeft(int)                                     {}
func (l *losses) PeerLost(_ int, err error)                        { l.lost = append(l.lost, err) }
func (*losses) Mismatch(int, fabric.Key, fabric.Desc, fabric.Desc) {}
func (*losses) Control(int, []byte)                                {}

func TestCut(t *testing.T) {
	p := newPair(t, fault.Rule{Do: fault.Cut, Peer: 1, After: 1})
	h := &losses{}
	p.ranks[0].(fabric.Messenger).Handle(h)
	in := message(1, 5, make([]byte, 8))
	p.ranks[0].Recv(in)
	first, second, third := message(1, 0, make([]byte, 8)), message(1, 0, make([]byte, 8)), message(1, 5, make([]byte, 8))
	p.ranks[0].Send(first)
	p.ranks[0].Send(second)
	p.ranks[0].Recv(third)
	if err := wait(p.ranks[0], first, time.Minute); err != nil {
		t.Error(err)
	}
	for what, m := range map[string]*fabric.Msg{"posted before": in, "sent": second, "posted after": third} {
		var lost *fabric.PeerError
		if err := wait(p.ranks[0], m, time.Minute); !errors.As(err, &lost) || lost.Peer != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(h.lost) != 1 {
		t.Errorf("losses %v", h.lost)
	}
	if p.ranks[0].(fabric.Messenger).Control(1, nil) == nil {
		t.Error("a control payload got through")
	}
}

func TestScript(t *testing.T) {
	s, err := fault.ParseScript(" drop peer=2 class=collective after=10 count=1; delay=5ms chance=0.25 class=p2p class=internal;seed=7; cut ;")
	want := fault.Script{Seed: 7, Rules: []fault.Rule{
		{Do: fault.Drop, Peer: 2, Classes: fault.On(fabric.Collective), After: 10, Count: 1},
		{Do: fault.Delay, Peer: fabric.AnySource, Classes: fault.On(fabric.PointToPoint, fabric.Internal), Chance: 0.25,
			Delay: 5 * time.Millisecond},
		{Do: fault.Cut, Peer: fabric.AnySource},
	}}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"explode", "drop=3", "delay", "delay=x", "drop peer=-1", "drop chance=0",
		"drop chance=NaN", "drop class=x", "drop colour=red", "seed=x", "delay=-1s"} {
		if _, err := fault.ParseScript(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add("drop peer=2 class=collective after=10 count=1; delay=5ms chance=0.25; seed=7")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fault.ParseScript(text)
		if err != nil {
			return
		}
		for _, r := range s.Rules {
			if r.Do == 0 || r.Peer < fabric.AnySource || r.After < 0 || r.Count < 0 || r.Chance < 0 || r.Chance > 1 ||
				r.Delay < 0 {
				t.Fatalf("%q gives %+v", text, r)
			}
		}
	})
}

func TestOpen(t *testing.T) {
	f, err := fabric.Open(t.Context(), "fault", fabric.Config{Size: 1, Options: map[string]string{"inner": "mem",
		"script": "drop"}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(t.Context())
	m := message(0, 0, nil)
	f.Send(m)
	in := message(0, 0, nil)
	f.Recv(in)
	if !m.Done() || in.Done() {
		t.Error("the message was not dropped")
	}
	if _, err := fabric.Open(t.Context(), "fault", fabric.Config{Size: 1, Options: map[string]string{"inner": "mem",
		"script": "explode"}}); err == nil {
		t.Error("a wrong script was accepted")
	}
}
