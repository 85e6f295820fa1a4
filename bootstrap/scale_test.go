package bootstrap

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// TestExchangeScale has some hundred clients of one server exchange payloads, a
// thousand with CHORUS_TEST_LONG=1.
func TestExchangeScale(t *testing.T) {
	size := 200
	if long() {
		size = 1000
	}
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	var ranks sync.WaitGroup
	for r := range size {
		ranks.Go(func() {
			st, err := store.DialTCP(ctx, server.Addr().String(), store.TCPOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			all, err := Exchange(ctx, st, r, size, []byte(strconv.Itoa(r)))
			if err != nil {
				t.Error(err)
			}
			for i, got := range all {
				if string(got) != strconv.Itoa(i) {
					t.Errorf("rank %d got %q of rank %d", r, got, i)
				}
			}
		})
	}
	ranks.Wait()
	t.Logf("%d ranks in %v", size, time.Since(begin).Round(time.Millisecond))
}

func long() bool { return os.Getenv("CHORUS_TEST_LONG") == "1" }
