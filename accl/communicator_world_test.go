package accl

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apart is a device whose memory the host can't touch, as a card's is; it counts what is copied.
type apart struct {
	Device
	mu            sync.Mutex
	read, written int
}

func (a *apart) Alloc(n int, at MemoryKind) (uint64, []byte, error) {
	addr, _, err := a.Device.Alloc(n, at)
	return addr, nil, err
}
func (a *apart) Map([]byte, MemoryKind) (uint64, bool) { return 0, false }
func (a *apart) ReadMemory(addr uint64, at MemoryKind, into []byte) error {
	a.mu.Lock()
	a.read += len(into)
	a.mu.Unlock()
	return a.Device.ReadMemory(addr, at, into)
}
func (a *apart) WriteMemory(addr uint64, at MemoryKind, from []byte) error {
	a.mu.Lock()
	a.written += len(from)
	a.mu.Unlock()
	return a.Device.WriteMemory(addr, at, from)
}

// devices returns the devices of n engines in one network.
func devices(n int, p abi.Protocol) (devs []Device, ranks []abi.Rank) {
	net := engine.NewNetwork()
	for r := range uint32(n) {
		e := engine.New(engine.Config{Session: r, Protocol: p, Network: net.Port(r)})
		net.Attach(r, e)
		devs = append(devs, InProcess(e))
		ranks = append(ranks, abi.Rank{IP: 0x7F000001, Port: 5500 + r, Session: r, MaxSegmentSize: 4096})
	}
	return devs, ranks
}

// drivers returns those of n engines.
func drivers(t *testing.T, devs []Device, c Config) []*Driver {
	t.Helper()
	ds := make([]*Driver, len(devs))
	for r, dev := range devs {
		c.Local = r
		var err error
		if ds[r], err = New(t.Context(), dev, c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ds[r].Close() })
	}
	return ds
}

// world is n drivers of engines of this process.
func world(t *testing.T, n int, p abi.Protocol) []*Driver {
	devs, ranks := devices(n, p)
	return drivers(t, devs, Config{Ranks: ranks})
}

// each runs f for each driver at once.
func each(t *testing.T, ds []*Driver, f func(ctx context.Context, d *Driver) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range ds {
		wg.Go(func() {
			if err := f(ctx, d); err != nil {
				t.Errorf("rank %d: %v", d.Rank(), err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// numbers is a buffer of the numbers from first on.
func numbers(d *Driver, count, first int, opts ...BufferOption) *Buffer {
	b, err := d.Buffer(count, abi.Float32, opts...)
	if err != nil {
		panic(err)
	}
	for i := range Elements[float32](b) {
		Elements[float32](b)[i] = float32(first + i)
	}
	return b
}

// expect compares a buffer with a function.
func expect(b *Buffer, of func(i int) float32) error {
	for i, x := range Elements[float32](b) {
		if x != of(i) {
			return fmt.Errorf("element %d is %v, want %v", i, x, of(i))
		}
	}
	return nil
}
