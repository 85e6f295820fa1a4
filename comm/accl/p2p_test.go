package accl

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// TestPeerToPeer has tensors of an emulated device be operands of engines as they lie, or staged: with the same bits,
// and the counters say which.
func TestPeerToPeer(t *testing.T) {
	const n, count, calls = 2, 20_000, 4
	var results [2][]float32
	for i, flag := range []string{"on", "off"} {
		comms, err := openWorld(Name, n, map[string]string{"accl.p2p": flag}, comm.WithDevice("accinte:0"))
		if err != nil {
			t.Fatal(err)
		}
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			s, err := c.Stream().Device().NewStream(device.Normal)
			if err != nil {
				return err
			}
			defer s.Close()
			ctx = device.WithStream(ctx, s)
			host := make([]float32, count)
			for k := range host {
				host[k] = 1 / float32(k+c.Rank()+1)
			}
			x, err := tensor.EmptyOn(ctx, s.Device(), dtype.Float32, count)
			if err != nil {
				return err
			}
			if err := tensor.Copy(ctx, x, tensor.Of(host)); err != nil {
				return err
			}
			for range calls {
				if err := c.AllReduce(ctx, x, comm.Avg); err != nil {
					return err
				}
			}
			if err := tensor.Copy(ctx, tensor.Of(host), x); err != nil {
				return err
			}
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
			want := comm.Traffic{Mapped: calls}
			if flag == "off" {
				want = comm.Traffic{Staged: calls}
			}
			if got := c.Traffic(); got != want {
				return fmt.Errorf("p2p is %s: %+v, want %+v", flag, got, want)
			}
			if c.Rank() == 0 {
				results[i] = host
			}
			return nil
		})
	}
	if !slices.Equal(results[0], results[1]) {
		t.Error("peer to peer and staged have different bits")
	}
}
