package accl

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// TestWaits has callers run the engine themselves. A call whose wait ends is dropped, one that a reset drops ends, and
// calls behind others take their turn. The calls of all ranks together are done.
func TestWaits(t *testing.T) {
	for _, count := range []int{10, 10_000} { // eager, by rendezvous
		ds := world(t, 2, abi.RDMA)
		// patient waits for the end of a call, and says first that it does.
		patient := func(begun func()) Option {
			return Waits(func(done <-chan struct{}) error {
				begun()
				select {
				case <-done:
					return nil
				case <-time.After(20 * time.Second):
					return errors.New("it hangs")
				}
			})
		}
		sum := func(ctx context.Context, d *Driver, o Option) error {
			return d.Allreduce(ctx, abi.Sum, numbers(d, count, 0), numbers(d, count, 0), count, o)
		}
		each(t, ds, func(ctx context.Context, d *Driver) error {
			ended := make(chan error)
			for range 2 { // one waits for the other
				go func() { ended <- sum(ctx, d, patient(func() {})) }()
			}
			return errors.Join(<-ended, <-ended)
		})
		gone := errors.New("gone")
		ctx := context.Background()
		if err := sum(ctx, ds[0], Waits(func(<-chan struct{}) error { return gone })); !errors.Is(err, gone) {
			t.Errorf("a wait that is given up: %v", err)
		}
		ended := make(chan error)
		waiting := make(chan struct{})
		begun := sync.OnceFunc(func() { close(waiting) })
		go func() { ended <- sum(ctx, ds[0], patient(begun)) }()
		select {
		case <-waiting:
		case err := <-ended:
			t.Fatalf("a call that no other rank has begun ends: %v", err)
		}
		if err := ds[0].Reset(ctx); err != nil {
			t.Error(err)
		}
		var failed *CallError
		if err := <-ended; !errors.As(err, &failed) || failed.Status != abi.NotReady {
			t.Errorf("a call that a reset drops: %v", err)
		}
	}
}
