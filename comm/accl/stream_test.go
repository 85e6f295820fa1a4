package accl

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// sums is how many all-reduces the engine of a rank has carried out.
func (l *link) sums() (n int) {
	for _, r := range l.engine.Records() {
		if r.Scenario == abi.Allreduce && r.Done {
			n++
		}
	}
	return n
}

// TestStreams demands that engines begin when the stream gets there: a call returns while the stream is blocked, and
// nothing happens until it goes on. A graph's replays are calls of the engine that don't involve the communicator.
func TestStreams(t *testing.T) {
	const replays = 3
	comms, links := openTapped(t, "accl-streams", 2, 1, comm.WithDevice("accl:0"))
	l := <-links
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		s, err := c.Stream().Device().NewStream(device.Normal)
		if err != nil {
			return err
		}
		defer s.Close()
		ctx = device.WithStream(ctx, s)
		x, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, 1000)
		if err == nil {
			err = tensor.Fill(ctx, x, 1)
		}
		sums := func(want int, when string) {
			if got := l.sums(); c.Rank() == 1 && got != want {
				err = errors.Join(err, fmt.Errorf("%d all-reduces of the engine %s, want %d", got, when, want))
			}
		}
		open := make(chan struct{})
		err = errors.Join(err, s.HostFunc("gate", func() error { <-open; return nil }), c.AllReduce(ctx, x, comm.Sum))
		sums(0, "behind the gate")
		close(open)
		err = errors.Join(err, s.Synchronize(ctx))
		sums(1, "when it was open")
		g, err2 := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Sum) })
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		sums(1, "when one was captured")
		for range replays {
			err = errors.Join(err, g.Replay(s))
		}
		host := make([]float32, 1000)
		err = errors.Join(err, tensor.Copy(ctx, tensor.Of(host), x), s.Synchronize(ctx), g.Close())
		sums(1+replays, "after the replays")
		if want := float32(int(2) << replays); host[999] != want {
			err = errors.Join(err, fmt.Errorf("%v, want %v", host[999], want))
		}
		return err
	})
}
