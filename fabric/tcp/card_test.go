package tcp

import (
	"net/netip"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// FuzzCard has rank 1 tell anything about itself: it's refused, or its links can be set up.
func FuzzCard(f *testing.F) {
	good := card{host: []byte("h"), token: make([]byte, tokenBytes), connections: 2, window: 1 << 20,
		addrs: encodeAddrs([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")})}
	for _, change := range []func(*card){func(*card) {}, func(r *card) { r.addrs = nil }, func(r *card) { r.tls = true },
		func(r *card) { r.window = -1 }, func(r *card) { r.token = nil }, func(r *card) { r.addrs = []byte{2, 0, 0} },
		func(r *card) { r.addrs = encodeAddrs([]netip.AddrPort{netip.MustParseAddrPort("[::1%lo]:0")}) }} {
		r := good
		change(&r)
		f.Add(r.encode())
	}
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, theirs []byte) {
		e := &endpoint{f: newFabric(fabric.Config{Rank: 0, Size: 2, Timeout: fabric.DefaultTimeout}), mine: good}
		e.f.o.heartbeat = 0
		fab, err := e.Join(t.Context(), [][]byte{e.Card(), theirs}, transport.NewMatcher(2))
		if err != nil {
			return
		}
		if p := fab.(*Fabric).peers.To(1); len(p.addrs) == 0 || p.room < 0 || len(p.pipes) != 3 {
			t.Fatalf("accepted %q", theirs)
		}
		e.f.stop()
	})
}
