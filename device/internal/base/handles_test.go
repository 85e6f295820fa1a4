package base

import (
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device/driver"
)

type thing[H any] struct {
	Entry[H, *thing[H]]
	Life
}

type (
	stream = thing[driver.StreamHandle]
	event  = thing[driver.EventHandle]
)

func TestHandles(t *testing.T) {
	n := &Numbers{Driver: "here"}
	streams := NewHandles[driver.StreamHandle, *stream](n, "stream")
	events := NewHandles[driver.EventHandle, *event](n, "event")
	a, b := new(stream), new(event)
	s, e := streams.Add(a), events.Add(b)
	if s%2 == 0 || e%2 == 0 || uintptr(s) == uintptr(e) {
		t.Errorf("handles %d and %d", s, e)
	}
	if v, err := Enter(streams, "look", s); v != a || err != nil {
		t.Fatal(v, err)
	}
	a.Unlock()
	unknown := func(err error, words string) {
		t.Helper()
		if !errors.Is(err, driver.ErrInvalidHandle) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v is not about %q", err, words)
		}
	}
	_, err := streams.Find("look", driver.StreamHandle(e))
	unknown(err, "here: look: invalid handle: no stream has the handle 0x")

	b.Gone = true // as when a call destroys it while another one comes to it
	_, _, err = EnterBoth(streams, events, "record", s, e)
	unknown(err, "no event")
	if !a.TryLock() {
		t.Error("the stream stayed locked")
	}
	a.Unlock()

	again := new(stream)
	streams.Put(s, again) // the library has used the handle again
	streams.Drop(s, a)
	if v, err := streams.Take("take", s); v != again || err != nil {
		t.Error(v, err)
	}
	_, err = streams.Take("take", s)
	unknown(err, "no stream")
}

// TestTagged tells why a handle is none, of drivers whose handles no other has.
func TestTagged(t *testing.T) {
	var a, b Numbers
	a.Tag()
	b.Tag()
	things, others := NewHandles[driver.StreamHandle, *stream](&a, "stream"), NewHandles[driver.StreamHandle, *stream](&b, "stream")
	gone, other := things.Add(new(stream)), others.Add(new(stream))
	if _, err := things.Find("look", gone); err != nil {
		t.Fatal(err)
	}
	if _, err := things.Take("take", gone); err != nil || things.Len() != 0 || others.Len() != 1 {
		t.Fatal(err)
	}
	for h, why := range map[driver.StreamHandle]string{0: "it is null", gone: "it was destroyed, or is something else",
		other: "it was not made by this driver"} {
		_, err := things.Find("look", h)
		if !errors.Is(err, driver.ErrInvalidHandle) || !strings.Contains(err.Error(), "is no stream: "+why) {
			t.Errorf("%#x: %v", uintptr(h), err)
		}
	}
}

type holding[H any] struct {
	Entry[H, *holding[H]]
	holds int
}

func (x *holding[H]) Hold() { x.holds++ }

func TestModules(t *testing.T) {
	ms := NewModules[*holding[driver.ModuleHandle], *holding[driver.FunctionHandle]](&Numbers{Driver: "here"})
	m, f := new(holding[driver.ModuleHandle]), new(holding[driver.FunctionHandle])
	h := ms.Add(m)
	fh, err := ms.AddFunction("look up", "here:0", h, m, f)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := ms.Function("launch", fh); v != f || f.holds != 1 || err != nil {
		t.Error(v, f.holds, err)
	}
	if v, err := ms.Take("unload", h); v != m || err != nil || len(ms.All()) != 0 {
		t.Error(v, err, ms.All())
	}
	for _, err := range []error{second(ms.Function("launch", fh)), second(ms.Find("look up", h)),
		second(ms.AddFunction("look up", "here:0", h, m, f)), second(ms.Take("unload", h))} {
		if !errors.Is(err, driver.ErrInvalidHandle) {
			t.Error(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
