package rendezvous

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// FuzzRecords has another launcher write anything about the job, itself and the attempt: that is an error, or makes a
// world.
func FuzzRecords(f *testing.F) {
	t, _ := json.Marshal(agreedSettings{Nodes: 2})
	m, _ := json.Marshal(Member{Host: "h", Pid: 1, Ranks: 3})
	f.Add(t, m, []byte("127.0.0.1:29500"))
	f.Add([]byte("{}"), []byte(`{"Ranks":-1}`), []byte("no port"))
	f.Add([]byte(`{"Nodes":2,"Server":99}`), []byte(`{"Ranks":9223372036854775807}`), []byte("[::1%]:65536"))
	f.Fuzz(func(t *testing.T, job, other, addr []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		h := store.NewHash(time.Second)
		defer h.Close()
		rv := newFixed(&rendezvous{job: &Config{Nodes: 2, RanksPerNode: 1, NodeRank: AnyNodeRank, RunID: "r", Monitor: time.Millisecond,
			JoinTimeout: time.Second, Grace: time.Second,
			LostAfter: time.Second}, endpoint: "e", events: make(chan *process.Failure, 1), store: store.NewPrefix("p", h)})
		for key, value := range map[string][]byte{"job": job, "node/0": other, attemptKey(0, "store"): addr} {
			if err := rv.store.Set(ctx, key, value); err != nil {
				t.Fatal(err)
			}
		}
		if rv.enter(ctx, "here") != nil || rv.gather(ctx, time.Now().Add(100*time.Millisecond), t.Logf) != nil {
			return
		}
		total := 0
		for _, m := range rv.world {
			if m.Ranks < 1 || m.Ranks > maxRanks {
				t.Fatalf("a node with %d ranks", m.Ranks)
			}
			total += m.Ranks
		}
		if rv.Node < 0 || rv.Node >= len(rv.world) || rv.world[rv.Node].Ranks != 1 {
			t.Fatalf("node %d of %d ranks in %d nodes", rv.Node, total, len(rv.world))
		}
		if rv.serverPos < 0 || rv.serverPos >= 2 {
			t.Fatalf("node %d serves", rv.serverPos)
		}
		rv.startLiveness(func(*process.Failure) {})
		defer rv.leave(time.Second)
		s, err := rv.Begin(ctx, 0)
		rv.watching.Stop()
		if err == nil && (s.Addr == "" || s.Port < 1 || s.Port > 65535) {
			t.Fatalf("%q:%d", s.Addr, s.Port)
		}
	})
}

func FuzzDecodeFailure(f *testing.F) {
	f.Add([]byte(`{"Kind":"exited","Rank":1}`))
	f.Add([]byte(`{"Signal":-5,"Kind":"signaled"}`))
	f.Add([]byte(`x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if decodeFailure(data).Error() == "" {
			t.Error("a failure without words")
		}
	})
}
