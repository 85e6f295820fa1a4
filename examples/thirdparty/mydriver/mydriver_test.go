package mydriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { devicetest.Run(t, New(2, 64<<20)) }

// TestCommunicator sums up tensors of two devices, in the order of their streams.
func TestCommunicator(t *testing.T) {
	const n = 2
	st := store.NewHash(30 * time.Second)
	defer st.Close()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = sum(st, r, n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func sum(st store.Store, rank, n int) error {
	ctx := context.Background()
	dev, err := device.Get(fmt.Sprintf("%s:%d", Name, rank))
	if err != nil {
		return err
	}
	c, err := comm.New(ctx, comm.WithRank(rank, n), comm.WithStore(st), comm.WithName("sum"),
		comm.WithDevice(dev.String()))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	x, err := tensor.EmptyOn(ctx, dev, dtype.Float32, 1000)
	if err != nil {
		return err
	}
	if err := x.Fill(float64(rank + 1)); err != nil {
		return err
	}
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		return err
	}
	got := make([]float32, 1000)
	if err := tensor.Copy(ctx, tensor.Of(got), x); err != nil {
		return err
	}
	for i, v := range got {
		if v != float32(n*(n+1)/2) {
			return fmt.Errorf("rank %d: element %d is %v", rank, i, v)
		}
	}
	return nil
}
