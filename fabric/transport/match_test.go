package transport

import (
	"testing"

	"github.com/chorus-comms/chorus/fabric"
)

// arrivals is a transport whose messages have no bytes.
type arrivals struct{ dropped int }

func (t *arrivals) Fetch(a *Arrival, m *fabric.Msg) {
	if m == nil {
		t.dropped++
		return
	}
	m.Complete(a.Len, a.From, nil)
}

type mismatches struct{ locals, remotes []fabric.Desc }

func (h *mismatches) PeerLeft(int)        {}
func (h *mismatches) PeerLost(int, error) {}
func (h *mismatches) Control(int, []byte) {}
func (h *mismatches) Mismatch(_ int, _ fabric.Key, local, remote fabric.Desc) {
	h.locals, h.remotes = append(h.locals, local), append(h.remotes, remote)
}

// TestLateMismatch has a message arrive when its receiver is operations further
// on: it received nothing, being the root of a broadcast, say.
func TestLateMismatch(t *testing.T) {
	for _, ahead := range []uint64{0, 1, 5, remembered - 1, remembered, 3 * remembered} {
		x, h, via := NewMatcher(2), &mismatches{}, &arrivals{}
		x.Handle(h)
		for tag := uint64(1); tag <= 3+ahead; tag++ {
			x.Announce(7, tag, &fabric.Desc{byte(tag), 1})
		}
		arrive := func(comm uint32, tag uint64, d fabric.Desc) {
			x.Arrive(&Arrival{From: 1, Key: fabric.Key{Comm: comm, Class: fabric.Collective, Tag: tag}, Desc: d, Via: via})
		}
		known := fabric.Desc{3, 1}
		if ahead < remembered {
			arrive(7, 3, known) // the same operation
		} else {
			known = fabric.Desc{} // it's forgotten, and has ended without a message
		}
		arrive(8, 3, fabric.Desc{3, 2})    // another communicator
		arrive(7, 4+ahead, fabric.Desc{9}) // an operation to come
		if len(h.locals) != 0 {
			t.Fatalf("%d operations ahead: mismatches %v", ahead, h.remotes)
		}
		arrive(7, 3, fabric.Desc{3, 2})
		if len(h.locals) != 1 || h.locals[0] != known || h.remotes[0] != (fabric.Desc{3, 2}) {
			t.Errorf("%d operations ahead: told of %v against %v", ahead, h.locals, h.remotes)
		}
	}
}
