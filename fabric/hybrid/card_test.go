package hybrid

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// FuzzCard has rank 1 tell anything about itself: joining ends with an error, or with links to a rank that never
// answers.
func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"Host":"h","Near":"shm","Offer":"eyJIb3N0IjoiaCIsIlNvY2tldCI6IkB4IiwiVG9rZW4iOlsxXX0="}`))
	f.Add([]byte(`{"Host":"another"}`))
	f.Add([]byte(`{"Host":"h","Failure":"no memory","Demand":true}`))
	f.Add([]byte(`{"Host":"h","Near":"mem"}`))
	f.Add([]byte(`"text"`))
	f.Fuzz(func(t *testing.T, theirs []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		e, err := listen(ctx, fabric.Config{Rank: 0, Size: 2, HostID: "h", Timeout: 5 * time.Millisecond,
			Exchange: func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine, theirs}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		fab, err := e.Join(ctx, [][]byte{e.Card(), theirs}, transport.NewMatcher(2))
		if err == nil {
			fab.Close(ctx)
		}
		if ctx.Err() != nil {
			t.Fatal("it takes longer than its timeout")
		}
	})
}
