package device_test

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
)

// A graph in the pool of another gets what that one has deallocated; one with a pool of its own doesn't.
func TestGraphsShareAPool(t *testing.T) {
	_, a, _, _ := open(t)
	s := must[*device.Stream](t)(a.NewStream(device.Normal))
	alloc := func(p *device.Ptr) func() error {
		return func() (err error) {
			if *p, err = a.Alloc(1<<20, s); err == nil {
				err = s.Fill(*p, 1, 1<<20)
			}
			if err == nil {
				err = a.Dealloc(*p)
			}
			return err
		}
	}
	var p, q, r device.Ptr
	graph := must[*device.Graph](t)
	first := graph(device.Capture(s, alloc(&p)))
	shared := graph(device.Capture(s, alloc(&q), device.InPool(first.Pool())))
	alone := graph(device.Capture(s, alloc(&r)))
	if q != p || r == p || shared.Pool() != first.Pool() || alone.Pool() == first.Pool() {
		t.Errorf("memory %v, %v in the same pool, %v in another", p, q, r)
	}
	ok(t, first.Close()) // the pool stays as long as one of them
	again := graph(device.Capture(s, alloc(&q), device.InPool(shared.Pool())))
	if q != p {
		t.Errorf("memory %v, and %v later in the same pool", p, q)
	}
	for _, g := range []*device.Graph{shared, alone, again} {
		ok(t, g.Close())
	}
	refused(t, second(device.Capture(s, alloc(&p), device.InPool(cache.PoolID{}))), device.ErrInvalidArgument, "ordinary")
	ok(t, s.Close())
	ok(t, a.EmptyCache())
}

func TestGraphAsDOT(t *testing.T) {
	_, a, _, _ := open(t)
	s, o := must[*device.Stream](t)(a.NewStream(device.Normal)), must[*device.Stream](t)(a.NewStream(device.Normal))
	host := func(s *device.Stream, name string) { ok(t, s.HostFunc(name, func() error { return nil })) }
	g := must[*device.Graph](t)(device.Capture(s, func() error {
		host(s, `the "first"`)
		ok(t, o.WaitStream(s))
		host(s, "left")
		host(o, "right")
		return s.WaitStream(o)
	}))
	var b strings.Builder
	ok(t, g.WriteDOT(&b))
	for _, want := range []string{"digraph ", `n0 [label="host function: the \"first\""]`, "n0 -> n1", "n0 -> n2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "n1 -> n2") {
		t.Errorf("what is beside each other is not in\n%s", b.String())
	}
	ok(t, g.Close())
	refused(t, g.WriteDOT(&b), device.ErrInvalidHandle, "closed")
	ok(t, s.Close())
	ok(t, o.Close())
}
