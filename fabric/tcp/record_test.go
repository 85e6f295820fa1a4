package tcp

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
)

// FuzzRecord has rank 1 tell anything about itself: it's refused, or its links can be set up.
func FuzzRecord(f *testing.F) {
	good := record{Fabric: "tcp", Version: version, Host: "h", Token: make([]byte, tokenBytes), Connections: 2, Window: 1 << 20,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}}
	for _, change := range []func(*record){
		func(*record) {}, func(r *record) { r.Failure = "no memory" }, func(r *record) { r.Addrs = nil }, func(r *record) { r.TLS = true },
	} {
		r := good
		change(&r)
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"Fabric":"tcp","Version":2,"Addrs":["[::1%lo]:0"],"Window":-1}`))
	f.Fuzz(func(t *testing.T, theirs []byte) {
		c := fabric.Config{Rank: 0, Size: 2, Timeout: fabric.DefaultTimeout,
			Exchange: func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine, theirs}, nil }}
		records, err := exchange(t.Context(), c, good)
		if err != nil {
			return
		}
		w := newFabric(c, fabric.NewMatcher(2))
		w.o = defaults()
		if err := w.join(records); err != nil {
			t.Fatal(err)
		}
		w.closeKeepers()
		w.stop()
		if p := w.peers[1]; len(p.addrs) == 0 || p.room < 0 || len(p.pipes) != 3 {
			t.Fatalf("accepted %s", theirs)
		}
	})
}
