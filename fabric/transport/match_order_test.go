package transport

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/fabric"
)

// model is a Matcher that is slow and plain: lists in order of time.
type model struct {
	posted  []*fabric.Msg
	arrived []*Arrival
}

func (x *model) post(m *fabric.Msg) (got *Arrival) {
	for i, a := range x.arrived {
		if (m.Peer == fabric.AnySource || m.Peer == a.From) && m.Key == a.Key {
			x.arrived = append(x.arrived[:i:i], x.arrived[i+1:]...)
			return a
		}
	}
	x.posted = append(x.posted, m)
	return nil
}

func (x *model) arrive(a *Arrival) (got *fabric.Msg) {
	for i, m := range x.posted {
		if (m.Peer == fabric.AnySource || m.Peer == a.From) && m.Key == a.Key {
			x.posted = append(x.posted[:i:i], x.posted[i+1:]...)
			return m
		}
	}
	x.arrived = append(x.arrived, a)
	return nil
}

// giveBack is arrive for a message that was matched before: it's where it was among the others.
func (x *model) giveBack(a *Arrival, births map[*Arrival]int) (got *fabric.Msg) {
	if got = x.arrive(a); got == nil {
		slices.SortFunc(x.arrived, func(a, b *Arrival) int { return births[a] - births[b] })
	}
	return got
}

// pairs is a transport that notes what was matched.
type pairs map[*fabric.Msg]*Arrival

func (p pairs) Fetch(a *Arrival, m *fabric.Msg) {
	if m != nil {
		p[m] = a
		m.Complete(a.Len, a.From, nil)
	}
}

// TestMatcherAgreesWithModel does random posts, arrivals, and withdrawals before and after the match.
func TestMatcherAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 3
		x, plain, got := NewMatcher(size), &model{}, pairs{}
		want, births := map[*fabric.Msg]*Arrival{}, map[*Arrival]int{}
		var matched []*fabric.Msg
		key := func() fabric.Key {
			return fabric.Key{Comm: uint32(rapid.IntRange(0, 1).Draw(t, "comm")), Class: fabric.PointToPoint,
				Tag: uint64(rapid.IntRange(0, 1).Draw(t, "tag"))}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1, 2:
				m := &fabric.Msg{Peer: rapid.IntRange(fabric.AnySource, size-1).Draw(t, "source"), Key: key()}
				m.Reset(nil)
				if a := plain.post(m); a != nil {
					want[m] = a
					matched = append(matched, m)
				}
				x.Post(m)
			case 3, 4, 5:
				a := &Arrival{From: rapid.IntRange(0, size-1).Draw(t, "sender"), Key: key(), Via: got}
				births[a] = len(births)
				if m := plain.arrive(a); m != nil {
					want[m] = a
					matched = append(matched, m)
				}
				x.Arrive(a)
			case 6:
				if n := len(matched); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					m := matched[i]
					matched = append(matched[:i:i], matched[i+1:]...)
					old := want[m]
					a := &Arrival{From: old.From, Key: old.Key, Via: got}
					births[a] = births[old]
					delete(want, m)
					delete(got, m)
					if m := plain.giveBack(a, births); m != nil {
						want[m] = a
						matched = append(matched, m)
					}
					x.Return(a, m)
				}
			default:
				if n := len(plain.posted); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					m := plain.posted[i]
					plain.posted = append(plain.posted[:i:i], plain.posted[i+1:]...)
					if !x.Withdraw(m, fabric.ErrCanceled) || m.Err != fabric.ErrCanceled || x.Withdraw(m, fabric.ErrCanceled) {
						t.Fatal("a posted receive can be withdrawn once")
					}
				}
			}
			if len(want) != len(got) {
				t.Fatalf("%d pairs; want %d", len(got), len(want))
			}
		}
		for m, a := range want {
			if got[m] != a {
				t.Fatal("a receive got another message")
			}
		}
		x.Close(fabric.ErrClosed)
		for _, m := range plain.posted {
			if m.Err != fabric.ErrClosed {
				t.Fatalf("posted when the matcher closed: %v", m.Err)
			}
		}
	})
}

func TestRetractAndLeave(t *testing.T) {
	x, via := NewMatcher(3), &arrivals{}
	k := fabric.Key{Class: fabric.PointToPoint}
	all := []*Arrival{{From: 1, Key: k, Via: via}, {From: 1, Key: k, Via: via, Len: 5}, {From: 2, Key: k, Via: via}}
	for _, a := range all {
		x.Arrive(a)
	}
	if found := x.Retract(func(a *Arrival) bool { return a == all[0] }); len(found) != 1 || found[0] != all[0] {
		t.Fatalf("retracted %d", len(found))
	}
	x.Left(1)
	post := func(from int) *fabric.Msg {
		m := &fabric.Msg{Peer: from, Key: k}
		m.Reset(nil)
		x.Post(m)
		return m
	}
	if m := post(1); m.Err != nil || m.N != 5 {
		t.Errorf("a message that came before the peer left: %v", m.Err)
	}
	if m := post(1); !errors.Is(m.Err, fabric.ErrLeft) {
		t.Errorf("after that: %v", m.Err)
	}
	h := &lossHandler{}
	x.Lost(2, errors.New("gone"))
	x.Control(2, []byte("last words"))
	x.Handle(h)
	if len(h.lost) != 1 || h.lost[0] != 2 || len(h.controls) != 1 {
		t.Errorf("told of losses %v, control %q", h.lost, h.controls)
	}
	if m := post(2); m.Err != nil {
		t.Errorf("a message that came before the peer was lost: %v", m.Err)
	}
	var lost *fabric.PeerError
	if m := post(fabric.AnySource); !errors.As(m.Err, &lost) || lost.Peer != 1 { // the first that went
		t.Errorf("nobody is left: %v", m.Err)
	}
}

type lossHandler struct {
	lost     []int
	controls [][]byte
}

func (h *lossHandler) PeerLeft(int)                                       {}
func (h *lossHandler) PeerLost(peer int, _ error)                         { h.lost = append(h.lost, peer) }
func (h *lossHandler) Mismatch(int, fabric.Key, fabric.Desc, fabric.Desc) {}
func (h *lossHandler) Control(_ int, payload []byte)                      { h.controls = append(h.controls, payload) }
