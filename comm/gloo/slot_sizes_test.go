package gloo_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// TestSizes sends more than is received, and less, which the receiver finds. Gloo's wire carries no description: so the
// receiver knows only the bytes of what was sent.
func TestSizes(t *testing.T) {
	for sent, want := range map[int]string{8: "send(32 bytes)", 2: "send(8 bytes)"} {
		comms := worlds(t, 2)
		ctx := context.Background()
		var wg sync.WaitGroup
		wg.Go(func() {
			x := tensor.Must(tensor.Empty(dtype.Float32, sent))
			if err := comms[0].Send(ctx, x, 1, comm.Timeout(20*time.Second)); err != nil {
				t.Errorf("sending %d elements: %v", sent, err)
			}
		})
		err := comms[1].Recv(ctx, tensor.Must(tensor.Empty(dtype.Float32, 4)), 0, comm.Timeout(20*time.Second))
		wg.Wait()
		var unequal *comm.MismatchError
		if !errors.As(err, &unequal) || unequal.RankA != 0 || unequal.RankB != 1 || unequal.OpA != want ||
			unequal.OpB != "recv(float32[4])" {
			t.Errorf("receiving 4 of %d elements: %v", sent, err)
		}
		for _, c := range comms {
			wg.Go(func() { c.Finalize(ctx) })
		}
		wg.Wait()
	}
}
