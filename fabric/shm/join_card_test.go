package shm

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// FuzzCard has rank 1 tell anything about itself: joining ends with an error in time, since there is no
// rank 1.
func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"Host":"h","Socket":"@x","Token":[1]}`))
	f.Add([]byte(`{"Host":"another"}`))
	f.Add([]byte(`{"Host":"h"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, theirs []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for rank := range 2 { // the lower one is called, the higher one calls
			e, err := listen(ctx, fabric.Config{Rank: rank, Size: 2, HostID: "h", Timeout: 5 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			cards := [][]byte{theirs, theirs}
			cards[rank] = e.Card()
			if _, err := e.Join(ctx, cards, transport.NewMatcher(2)); err == nil {
				t.Fatal("it has joined a rank that isn't there")
			}
			e.Close()
			if ctx.Err() != nil {
				t.Fatal("it takes longer than its timeout")
			}
		}
	})
}
