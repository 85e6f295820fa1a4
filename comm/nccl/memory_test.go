//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// segment is the number of 32-bit elements that fill a segment of the allocator.
const segment = 4 << 20

// callCounts says how often functions of a stand-in were called, by any rank.
type callCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *callCounts) count(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[call]
}

func (c *callCounts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.of)
}

// counting makes a stand-in of a version whose calls are counted.
func counting(t *testing.T, version string) (library string, calls *callCounts) {
	t.Helper()
	calls = &callCounts{of: map[string]int{}}
	return simulate(t, nccltest.Options{Version: version, Fail: func(call string, _ int) abi.Result {
		calls.mu.Lock()
		defer calls.mu.Unlock()
		calls.of[call]++
		return abi.Success
	}}), calls
}

// Empty and Zeros give memory that the library has allocated on the communicator's device. It's registered before
// the first operation. It goes back once no tensor uses it and all communicators have deregistered it.
func TestMemory(t *testing.T) {
	library, calls := counting(t, "2.32")
	count := calls.count
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		ones *tensor.Tensor) error {
		a, err := c.Allocator()
		if err != nil {
			return err
		}
		for round := range 2 {
			x, err := c.Zeros(dtype.Float32, segment)
			if err != nil {
				return err
			}
			y, err := a.Empty(dtype.Float32, segment)
			if err != nil {
				return err
			}
			if x.On() != s.Device() || y.On() != s.Device() {
				return fmt.Errorf("on %v and %v", x.On(), y.On())
			}
			if err := errors.Join(tensor.Fill(ctx, y, 3), c.AllReduce(ctx, y, comm.Sum), tensor.Copy(ctx, x, y)); err != nil {
				return err
			}
			host, err := x.To(ctx, nil)
			if err != nil || host.At(segment-1) != 6 {
				return fmt.Errorf("round %d: %v, %w", round, host.At(segment-1), err)
			}
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
			x.Free()
			y.Free()
		}
		if err := s.Device().EmptyCache(); err != nil {
			return err
		}
		return errors.Join(c.AllReduce(ctx, ones, comm.Sum), s.Synchronize(ctx))
	})
	if n := count("ncclMemAlloc"); n == 0 || count("ncclCommRegister") < n {
		t.Errorf("%d allocations, %d registrations", n, count("ncclCommRegister"))
	}
	testutil.Eventually(t, func() bool {
		return count("ncclMemFree") >= count("ncclMemAlloc") && count("ncclCommDeregister") >= count("ncclCommRegister")
	}, "all memory is freed and deregistered")
}

// A library that gives out no memory has the device's, unless that's asked for.
func TestMemoryRefused(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.18"})
	const text = "has no allocation: it lacks ncclMemAlloc, ncclMemFree, which came with NCCL 2.19"
	each(t, open(t, "nccl", library, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		_ *tensor.Tensor) error {
		if _, err := c.Allocator(); !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("an allocator: %w", err)
		}
		x, err := c.Zeros(dtype.Float32, 10)
		return errors.Join(err, c.AllReduce(ctx, x, comm.Sum), s.Synchronize(ctx))
	})
	t.Setenv("CHORUS_NCCL_LIBRARY", library)
	if _, err := comm.NewAllocator(t.Context(), "nccl", "accinte:0"); !errors.Is(err, comm.ErrUnsupported) ||
		!strings.Contains(err.Error(), text) {
		t.Errorf("an allocator without a communicator: %v", err)
	}
}
