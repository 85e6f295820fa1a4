package base

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device/driver"
)

type memory struct{ Allocation }

func TestAllocations(t *testing.T) {
	one, two := &Device{Name: "here:0"}, &Device{Name: "here:1", Index: 1}
	var as Allocations[*memory]
	add := func(base driver.Ptr, bytes int, on *Device) *memory {
		a := &memory{Allocation{Base: base, Bytes: bytes, On: on}}
		as.Add(a)
		return a
	}
	b, a, host := add(2000, 100, two), add(1000, 100, one), add(3000, 10, nil)
	for p, want := range map[driver.Ptr]*memory{999: nil, 1000: a, 1099: a, 1100: nil, 2050: b, 3009: host, 3010: nil} {
		if got, known := as.Find(p); got != want || known != (want != nil) {
			t.Errorf("at %d: %v, %v", p, got, known)
		}
	}
	if at := b.Attributes(); at.Type != driver.DeviceMemory || at.Device != 1 || at.Base != 2000 || at.Bytes != 100 {
		t.Error(at)
	}
	remote := as.Open(&memory{Allocation{Base: 5000, Bytes: 10, On: one}}, func(*memory, bool) bool { return true })
	for _, c := range []struct {
		p    driver.Ptr
		kind error
	}{{1100, driver.ErrInvalidPointer}, {3000, driver.ErrWrongKind}, {2000, driver.ErrWrongDevice},
		{5000, driver.ErrInvalidPointer}, {1001, driver.ErrInvalidPointer}, {1000, nil}, {1000, driver.ErrInvalidPointer}} {
		if _, err := as.Free("free", one, c.p); c.kind == nil && err != nil || !errors.Is(err, c.kind) {
			t.Errorf("%v: %v", c.p, err)
		}
	}
	if got, known := as.Find(1000); got != nil || !known {
		t.Error("memory that was freed, and not given back, is", got, known)
	}
	as.Remove(a)
	if _, known := as.Find(1000); known {
		t.Error("memory that was given back is known")
	}
	if x, err := as.FreeHost("free", "here", 3000); x != host || err != nil {
		t.Error(x, err)
	}
	if _, err := as.FreeHost("free", "here", 2000); !errors.Is(err, driver.ErrWrongKind) {
		t.Error(err)
	}

	open := func(a *memory, _ bool) bool { return a == remote }
	if again := as.Open(&memory{Allocation{Base: 5000, Bytes: 10, On: one}}, open); again != remote {
		t.Error("memory that is open was opened as other memory")
	}
	for _, last := range []bool{false, true} {
		if x, was, err := as.Close("here", 5000); x != remote || was != last || err != nil {
			t.Error(x, was, err)
		}
	}
	if _, _, err := as.Close("here", 5000); !errors.Is(err, driver.ErrInvalidPointer) {
		t.Error(err)
	}
}

func TestDevices(t *testing.T) {
	var ds Devices
	ds.Set("here", []*Device{{Name: "here:0"}, {Name: "here:1", Index: 1}})
	if can, err := ds.PeerAccess(0, 1); can || err != nil {
		t.Error(can, err)
	}
	if err := ds.SetPeer(0, 1, true, false, nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Error(err)
	}
	if err := ds.SetPeer(1, 1, true, false, nil); !errors.Is(err, driver.ErrWrongDevice) {
		t.Error(err)
	}
	refused := errors.New("the library refuses")
	if err := ds.SetPeer(0, 1, true, true, func(string) error { return refused }); err != refused || ds.Reaches(0, 1) {
		t.Error(err)
	}
	if err := ds.SetPeer(0, 1, true, true, nil); err != nil || !ds.Reaches(0, 1) || ds.Reaches(1, 0) || !ds.Reaches(1, 1) {
		t.Error(err, ds.access)
	}
	if _, err := ds.PeerAccess(0, 2); !errors.Is(err, driver.ErrWrongDevice) {
		t.Error(err)
	}
}
