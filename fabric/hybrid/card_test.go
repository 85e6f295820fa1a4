package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/hybrid"
)

// FuzzCard has rank 1 tell anything about itself: opening ends with an error, or with links to a rank that never answers.
func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"Host":"h","Offer":"eyJTb2NrZXQiOiJAeCIsIlRva2VuIjpbMV19"}`))
	f.Add([]byte(`{"Host":"another"}`))
	f.Add([]byte(`{"Host":"h","Failure":"no memory","Demand":true}`))
	f.Add([]byte(`{"Invalid":"option"}`))
	f.Add([]byte(`"text"`))
	f.Fuzz(func(t *testing.T, card []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		fab, err := hybrid.Open(ctx, fabric.Config{Rank: 0, Size: 2, HostID: "h", Timeout: 5 * time.Millisecond,
			Exchange: func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine, card}, nil }})
		if err == nil {
			fab.Close(ctx)
		}
		if ctx.Err() != nil {
			t.Fatal("it takes longer than its timeout")
		}
	})
}
