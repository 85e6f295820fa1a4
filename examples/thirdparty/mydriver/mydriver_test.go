package mydriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/driver"
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
	if err := tensor.Fill(ctx, x, float64(rank+1)); err != nil {
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

// TestTurns: the runtime gives a thread of the host its turn in a stream, though the driver knows nothing of that.
func TestTurns(t *testing.T) {
	dev, err := device.Get(Name + ":0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var order []string
	note := func(what string) func() error {
		return func() error { order = append(order, what); return nil }
	}
	for range 50 {
		order = nil
		s.HostFunc("before", note("before"))
		if err := s.Synchronize(ctx); err != nil {
			t.Fatal(err)
		}
		if entered, err := s.TryAcquire("turn"); !entered || err != nil {
			t.Fatalf("TryAcquire = %v, %v on an idle stream", entered, err)
		}
		s.HostFunc("after", note("after"))
		if entered, err := s.TryAcquire("again"); entered || err != nil {
			t.Fatalf("TryAcquire = %v, %v on an entered stream", entered, err)
		}
		note("turn")()
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		if err := s.Synchronize(ctx); err != nil || strings.Join(order, " ") != "before turn after" {
			t.Fatal(order, err)
		}
	}
	if err := s.Release(); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("Release without TryAcquire: %v", err)
	}
	s.HostFunc("bad", func() error { return errors.New("for a reason") })
	var failed *driver.WorkError
	if err := s.Synchronize(ctx); !errors.As(err, &failed) {
		t.Error(err)
	}
	if entered, err := s.TryAcquire("turn"); entered || !errors.As(err, &failed) {
		t.Errorf("TryAcquire = %v, %v on a failed stream", entered, err)
	}
}
