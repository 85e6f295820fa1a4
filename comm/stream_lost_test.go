package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
)

func init() { programs["doomed on device"] = doomedOnDevice }

// Ranks on devices of several processes, of which one is killed: the others learn of it from a replay, an asynchronous
// operation, or the current stream.
func TestKilledRankOfDevices(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) { killOneOf(t, "doomed on device", fabric, 3) })
	}
}

func doomedOnDevice() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := join(ctx, comm.WithDevice("accinte"))
	if err != nil {
		return err
	}
	s, err := c.Stream().Device().NewStream(device.Normal)
	if err != nil {
		return err
	}
	ctx = device.WithStream(ctx, s)
	x, err := numbers(ctx, c, 1<<20, 1)
	if err != nil {
		return err
	}
	g, err := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Max) })
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		var w comm.Work
		err := errors.Join(g.Replay(s), c.AllReduce(ctx, x, comm.Max, comm.Async(&w)))
		if err == nil {
			err = errors.Join(w.Synchronize(ctx), c.Barrier(ctx), s.Synchronize(ctx))
		}
		if err != nil {
			var lost *comm.PeerLostError
			if !errors.As(err, &lost) {
				return fmt.Errorf("not a *PeerLostError: %w", err)
			}
			if err := c.AllReduce(ctx, x, comm.Max); !errors.Is(err, comm.ErrPeerLost) {
				return fmt.Errorf("afterwards an operation gives %w", err)
			}
			fmt.Printf("lost %d: %v\n", lost.Peer, err)
			return nil
		}
		if round == 3 {
			fmt.Printf("ready %d\n", c.Rank())
		}
	}
}
