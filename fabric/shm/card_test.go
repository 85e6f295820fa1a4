package shm

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// FuzzCard has rank 1 tell anything about itself: opening ends with an error in time, as nobody is there.
func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"Host":"h","Offer":"eyJTb2NrZXQiOiJAeCIsIlRva2VuIjpbMV19"}`))
	f.Add([]byte(`{"Host":"another"}`))
	f.Add([]byte(`{"Host":"h","Failure":"no memory"}`))
	f.Add([]byte(`{"Host":"h","Offer":"e30="}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, card []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for rank := range 2 { // the lower one is called, the higher one calls
			fab, err := Open(ctx, fabric.Config{Rank: rank, Size: 2, HostID: "h", Timeout: 5 * time.Millisecond,
				Exchange: func(_ context.Context, mine []byte) ([][]byte, error) {
					if rank == 1 {
						return [][]byte{card, mine}, nil
					}
					return [][]byte{mine, card}, nil
				}})
			if err == nil {
				fab.Close(ctx)
				t.Fatal("it has joined a rank that isn't there")
			}
			if ctx.Err() != nil {
				t.Fatal("it takes longer than its timeout")
			}
		}
	})
}
