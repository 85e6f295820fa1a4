package tcp

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// FuzzCard has rank 1 tell anything about itself: it's refused, or its links can be set up.
func FuzzCard(f *testing.F) {
	good := card{Version: version, Host: "h", Token: make([]byte, tokenBytes), Connections: 2, Window: 1 << 20,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}}
	for _, change := range []func(*card){func(*card) {}, func(r *card) { r.Addrs = nil }, func(r *card) { r.TLS = true }} {
		r := good
		change(&r)
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"Version":2,"Addrs":["[::1%lo]:0"],"Window":-1}`))
	f.Fuzz(func(t *testing.T, theirs []byte) {
		e := &endpoint{f: newFabric(fabric.Config{Rank: 0, Size: 2, Timeout: fabric.DefaultTimeout}), mine: good}
		e.f.o.heartbeat = 0
		fab, err := e.Join(t.Context(), [][]byte{e.Card(), theirs}, transport.NewMatcher(2))
		if err != nil {
			return
		}
		if p := fab.(*Fabric).peers[1]; len(p.addrs) == 0 || p.room < 0 || len(p.pipes) != 3 {
			t.Fatalf("accepted %s", theirs)
		}
		e.f.stop()
	})
}
