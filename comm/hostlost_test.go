package comm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// The host of the store dies while a rank waits there for the others: New says whose process that was.
func TestStoreHostDies(t *testing.T) {
	for _, host := range []int{0, -1} {
		server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		st, err := store.DialTCP(t.Context(), server.Addr().String(), store.TCPOptions{Reconnect: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		go func() {
			server.Local().Get(t.Context(), "chorus/world/2/0/count")
			server.Close()
		}()
		began := time.Now()
		_, err = comm.New(t.Context(), comm.WithRank(1, 2), comm.WithStore(st), comm.WithStoreHost(host),
			comm.WithTimeout(time.Minute))
		var lost *comm.PeerLostError
		if !errors.As(err, &lost) || lost.Peer != host || lost.Reporter != 1 || !strings.Contains(err.Error(),
			"its process served the store") {
			t.Errorf("host %d: %v", host, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("host %d: after %v", host, took)
		}
	}
}
