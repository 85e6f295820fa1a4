package accinte

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/hostmem"
)

func address(p driver.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func first(t *testing.T, d *Driver) *device.Device {
	t.Helper()
	dev, err := device.NewRuntime(Name, d).Device(0)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Random programs mean what their statements mean one after the other, on devices that are peers and on such as are
// not.
func TestPrograms(t *testing.T) {
	for name, o := range map[string]Options{
		"peers":    {MemoryBytes: 16 << 20, Units: 2},
		"no peers": {MemoryBytes: 16 << 20, Units: 1, NoPeers: true},
		"three":    {MemoryBytes: 16 << 20, Units: 4, Devices: 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			rapid.Check(t, func(t *rapid.T) {
				err := devicetest.Program(d, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") })
				if err != nil {
					t.Fatal(err)
				}
			})
			if l := d.Live(); l.Streams+l.Events+l.Graphs+l.Execs+l.Allocations != 0 {
				t.Errorf("left over: %+v", l)
			}
		})
	}
}

// The host can't touch memory through a device pointer. It can through the engine's view of it, which peers can map.
func TestDualMapping(t *testing.T) {
	d := open(t, Options{MemoryBytes: 16 << 20})
	p, err := d.Malloc(1, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(1, p)
	v, err := d.View(p.Add(5000), 5000)
	if err != nil {
		t.Fatal(err)
	}
	if uintptr(v) == uintptr(p)+5000 {
		t.Error("the view is the device pointer")
	}
	seg, off, ok := hostmem.Find(v, 5000)
	if !ok || seg != d.arenas[1].seg {
		t.Fatal("the view doesn't lie in a segment that peers can map")
	}
	m, err := hostmem.Map(seg.FD(), int64(seg.Size()), seg.Color())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	*(*byte)(v) = 42
	if m.Bytes()[off] != 42 {
		t.Error("another mapping shows other memory")
	}
}

// Freed addresses stay errors for a long time, and memory goes back to the host.
func TestAddressesAreUsedLate(t *testing.T) {
	d := open(t, Options{MemoryBytes: 1 << 20, Devices: 1})
	seen := map[driver.Ptr]bool{}
	for range 1000 {
		p, err := d.Malloc(0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if seen[p] {
			t.Fatalf("%v is used again after %d allocations", p, len(seen))
		}
		seen[p] = true
		if err := d.Free(0, p); err != nil {
			t.Fatal(err)
		}
	}
}

// A random sequence of allocations of all sizes never overlaps, never leaves the memory, and in the end nothing is
// missing.
func TestArena(t *testing.T) {
	d := open(t, Options{MemoryBytes: 64 << 20, Devices: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	live := map[driver.Ptr]int{}
	total := 0
	for range 3000 {
		if rng.IntN(3) > 0 {
			n := 1 + rng.IntN(1<<rng.IntN(23))
			p, err := d.Malloc(0, n)
			if errors.Is(err, driver.ErrOutOfMemory) && total+roundUp(n, pageSize) > 64<<20 {
				continue
			}
			if err != nil {
				t.Fatalf("%d bytes with %d in use: %v", n, total, err)
			}
			for q, m := range live {
				if p < q.Add(m) && q < p.Add(n) {
					t.Fatalf("%d bytes at %v overlap %d at %v", n, p, m, q)
				}
			}
			live[p] = n
			total += roundUp(n, pageSize)
			continue
		}
		for p, n := range live {
			if err := d.Free(0, p); err != nil {
				t.Fatal(err)
			}
			delete(live, p)
			total -= roundUp(n, pageSize)
			break
		}
		if free, all, _ := d.MemInfo(0); int(all-free) != total {
			t.Fatalf("%d bytes are said to be in use, %d are", all-free, total)
		}
	}
	for p := range live {
		d.Free(0, p)
	}
	if a := d.arenas[0]; len(a.free) != 1 || a.free[0].size != a.seg.Size() {
		t.Errorf("the addresses are in %d pieces", len(a.free))
	}
}

// Copies between devices go by way of the host only if the devices can't touch each other.
func TestStaging(t *testing.T) {
	d := open(t, Options{MemoryBytes: 16 << 20})
	s, _ := d.StreamCreate(0, 0)
	defer d.StreamDestroy(s)
	const n = 3 << 20
	p, _ := d.Malloc(0, n)
	q, _ := d.Malloc(1, n)
	defer d.Free(0, p)
	defer d.Free(1, q)
	for _, peers := range []bool{false, true} {
		if err := d.SetPeerAccess(0, 1, peers); err != nil {
			t.Fatal(err)
		}
		before := d.Counters()
		if err := d.Copy(s, p, q, n, driver.DeviceToDevice); err != nil {
			t.Fatal(err)
		}
		if err := d.StreamSynchronize(soon(t), s); err != nil {
			t.Fatal(err)
		}
		now := d.Counters()
		if direct, staged := now.DirectBytes-before.DirectBytes, now.StagedBytes-before.StagedBytes; peers && (direct != n ||
			staged != 0) || !peers && (direct != 0 || staged != n) {
			t.Errorf("with peer access %v, %d bytes went directly and %d by way of the host", peers, direct, staged)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{Devices: -1}); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Error(err)
	}
	d, err := New(Options{MemoryBytes: 1 << 20, Devices: 5, NoPeers: true})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := d.DeviceCount(); n != 5 {
		t.Errorf("%d devices", n)
	}
	if err := d.SetPeerAccess(0, 1, true); !errors.Is(err, driver.ErrUnsupported) {
		t.Error(err)
	}
	s, _ := d.StreamCreate(0, 0)
	gate := make(chan struct{})
	d.HostFunc(s, "hold", func() error { <-gate; return nil })
	if err := d.Close(); !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("closed with work under way: %v", err)
	}
	close(gate)
	if err := d.StreamSynchronize(soon(t), s); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// Enqueueing and running a host function allocates next to nothing.
func TestAllocations(t *testing.T) {
	d := open(t, Options{MemoryBytes: 1 << 20})
	dev := first(t, d)
	s, err := dev.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, _ := dev.Malloc(4096)
	q, _ := dev.Malloc(4096)
	defer dev.Free(p)
	defer dev.Free(q)
	ctx := soon(t)
	n := testing.AllocsPerRun(100, func() {
		for range 100 {
			if err := s.Copy(p, q, 4096); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Synchronize(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if n > 130 && !raceEnabled {
		t.Errorf("100 copies allocate %v times", n)
	}
	t.Logf("100 copies and a synchronization: %v allocations", n)
}
