package device_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

// Freed pinned memory is given out again, but not before the work that was enqueued on it is done, whatever it is.
func TestPinnedCache(t *testing.T) {
	rt, a, b, ctx := open(t)
	s, other := must[*device.Stream](t)(a.NewStream(device.Normal)), must[*device.Stream](t)(b.NewStream(device.Normal))
	pin := must[*device.Pinned](t)
	d, e := must[device.Ptr](t)(a.Malloc(5000)), must[device.Ptr](t)(b.Malloc(5000))
	defer a.Free(d)
	defer b.Free(e)

	idle := pin(rt.Pin(5000))
	at := idle.Ptr()
	ok(t, idle.Free())
	ok(t, idle.Free())
	again := pin(rt.Pin(8000))
	if again.Ptr() != at {
		t.Errorf("%v was freed, and %v is given out", at, again.Ptr())
	}
	ok(t, again.Free())
	if st := rt.PinnedStats(); st.ActiveBytes.Current != 0 || st.AllocatedBytes.Current != 8192 {
		t.Errorf("%+v", st)
	}

	for name, use := range map[string]func(p device.Ptr) error{
		"copy from": func(p device.Ptr) error { return s.Copy(d, p.Add(10), 100) },
		"copy to":   func(p device.Ptr) error { return s.Copy(p, d, 5000) },
		"kernel": func(p device.Ptr) error {
			return s.Launch("touch", []device.Span{{Ptr: d, Bytes: 1}, {Ptr: p.Add(4999), Bytes: 1}},
				func(v []unsafe.Pointer) error { *(*byte)(v[1])++; return nil })
		},
		"two devices": func(p device.Ptr) error {
			if err := other.WaitStream(s); err != nil {
				return err
			}
			return other.Copy(e, p, 5000)
		},
	} {
		p := pin(rt.Pin(5000))
		gate := make(chan struct{})
		ok(t, s.HostFunc("hold", func() error { <-gate; return nil }))
		ok(t, use(p.Ptr()))
		ok(t, p.Free())
		if q := pin(rt.Pin(5000)); q.Ptr() == p.Ptr() {
			t.Errorf("%s: given out while the work is still to come", name)
		} else {
			close(gate)
			ok(t, s.Synchronize(ctx))
			ok(t, other.Synchronize(ctx))
			if r := pin(rt.Pin(5000)); r.Ptr() != p.Ptr() {
				t.Errorf("%s: not given out when the work is done", name)
			} else {
				ok(t, r.Free())
			}
			// The next case finds one block, as this one did.
			ok(t, q.Free())
			ok(t, rt.EmptyPinnedCache())
		}
	}

	// The contents are copied, though the memory is freed and the stream closed before the copy runs.
	p := pin(rt.Pin(5000))
	want := bytes.Repeat([]byte{7}, 5000)
	copy(p.Bytes(), want)
	gate := make(chan struct{})
	last := must[*device.Stream](t)(a.NewStream(device.Normal))
	ok(t, last.HostFunc("hold", func() error { <-gate; return nil }))
	ok(t, last.Copy(d, p.Ptr(), 5000))
	ok(t, s.WaitStream(last))
	ok(t, last.Close())
	ok(t, p.Free())
	next := pin(rt.Pin(5000)) // other memory
	clear(next.Bytes())
	close(gate)
	got := make([]byte, 5000)
	ok(t, s.CopyOut(ctx, got, d))
	if !bytes.Equal(got, want) {
		t.Error("memory was used anew before a copy of it")
	}
	ok(t, next.Free())
	ok(t, s.Close())
	ok(t, other.Close())
	refused(t, second(rt.Pin(0)), device.ErrInvalidArgument)
	refused(t, second(rt.Pin(-1)), device.ErrInvalidArgument)
}

// Memory that a stream has used may be freed while the stream is captured: the cache's event doesn't become a node.
func TestPinnedInCapture(t *testing.T) {
	rt, a, _, ctx := open(t)
	s := must[*device.Stream](t)(a.NewStream(device.Normal))
	d := must[device.Ptr](t)(a.Malloc(3000))
	defer a.Free(d)
	p, used := must[*device.Pinned](t)(rt.Pin(3000)), must[*device.Pinned](t)(rt.Pin(3000))
	ok(t, s.Copy(d, used.Ptr(), 3000))
	want := bytes.Repeat([]byte{3}, 3000)
	copy(p.Bytes(), want)
	g, err := device.Capture(s, func() error {
		if err := used.Free(); err != nil {
			return err
		}
		return s.Copy(d, p.Ptr(), 3000)
	})
	ok(t, err)
	nodes, err := g.Nodes()
	ok(t, err)
	if len(nodes) != 1 {
		t.Errorf("%d nodes: %+v", len(nodes), nodes)
	}
	ok(t, g.Replay(s))
	got := make([]byte, 3000)
	ok(t, s.CopyOut(ctx, got, d))
	if !bytes.Equal(got, want) {
		t.Error("a replay found other bytes")
	}
	ok(t, p.Free())
	ok(t, g.Close())
	ok(t, s.Close())
}
