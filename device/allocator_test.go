package device_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/rng"
)

func TestAllocator(t *testing.T) {
	_, a, b, ctx := open(t)
	if a.MemoryStats() != (cache.Stats{}) {
		t.Error("there are figures before the first use")
	}
	ok(t, a.EmptyCache())
	s := must[*device.Stream](t)(a.NewStream(device.Normal))
	o := must[*device.Stream](t)(b.Stream(device.Normal))
	p := must[device.Ptr](t)(a.Alloc(1000, s))
	if st := a.MemoryStats(); st.AllocatedBytes[0].Current != 1024 || st.ReservedBytes[0].Current != 2<<20 {
		t.Errorf("%d bytes allocated of %d reserved, want 1024 of 2 MiB", st.AllocatedBytes[0].Current,
			st.ReservedBytes[0].Current)
	}
	ok(t, s.CopyIn(ctx, p, bytes.Repeat([]byte{3}, 1000)))
	ok(t, a.Dealloc(p))
	if q := must[device.Ptr](t)(a.Alloc(500, s)); q != p {
		t.Errorf("the stream gets %v, not what it freed, %v", q, p)
	}
	// Memory that a stream of another device uses isn't given out before that is done with it.
	ok(t, a.RecordStream(p, o))
	gate := make(chan struct{})
	ok(t, o.HostFunc("hold", func() error { <-gate; return nil }))
	ok(t, a.Dealloc(p))
	q := must[device.Ptr](t)(a.Alloc(500, s))
	if q == p {
		t.Error("memory is given out that another stream still uses")
	}
	close(gate)
	ok(t, o.Synchronize(ctx))
	ok(t, a.Dealloc(q))

	refused(t, a.Dealloc(q), device.ErrInvalidPointer)
	refused(t, a.Dealloc(q.Add(8)), device.ErrInvalidPointer)
	refused(t, second(a.Alloc(100, o)), device.ErrWrongDevice)
	refused(t, second(a.Alloc(-1, s)), device.ErrInvalidArgument)
	_, err := a.Alloc(1<<40, nil)
	refused(t, err, device.ErrOutOfMemory, "PYTORCH_ALLOC_CONF")
	var oom *cache.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Requested != 1<<40 {
		t.Errorf("%v is no *cache.OutOfMemoryError", err)
	}
	ok(t, a.Dealloc(0))
	ok(t, a.RecordStream(0, o))
	if p, err := a.Alloc(0, s); p != 0 || err != nil {
		t.Errorf("no bytes: %v, %v", p, err)
	}
	ok(t, s.Close())
	ok(t, a.EmptyCache())
	if st := a.MemoryStats(); st.ReservedBytes[0].Current != 0 {
		t.Errorf("%d bytes stay reserved", st.ReservedBytes[0].Current)
	}
	ok(t, must[*device.Stream](t)(a.DefaultStream()).Synchronize(ctx))
}

// Memory allocated in a capture stays the graph's until it's closed.
func TestGraphMemory(t *testing.T) {
	_, a, _, ctx := open(t)
	s := must[*device.Stream](t)(a.Stream(device.Normal))
	out := must[device.Ptr](t)(a.Alloc(100, s))
	var tmp device.Ptr
	g := must[*device.Graph](t)(device.Capture(s, func() (err error) {
		if tmp, err = a.Alloc(100, s); err != nil {
			return err
		}
		ok(t, s.Fill(tmp, 7, 100))
		ok(t, s.Copy(out, tmp, 100))
		return a.Dealloc(tmp)
	}))
	other := must[device.Ptr](t)(a.Alloc(100, s))
	if other == tmp {
		t.Error("the graph's memory is given to others")
	}
	ok(t, s.Fill(other, 1, 100))
	ok(t, g.Replay(s))
	got := make([]byte, 100)
	ok(t, s.CopyOut(ctx, got, out))
	if !bytes.Equal(got, bytes.Repeat([]byte{7}, 100)) {
		t.Errorf("%v", got)
	}
	ok(t, g.Close())
	ok(t, a.Dealloc(out))
	ok(t, a.Dealloc(other))
	ok(t, a.EmptyCache())
	if st := a.MemoryStats(); st.ReservedBytes[0].Current != 0 {
		t.Errorf("%d bytes stay reserved", st.ReservedBytes[0].Current)
	}
}

func TestExpandableSegments(t *testing.T) {
	t.Setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
	_, a, _, ctx := openWith(t, 128<<20)
	s := must[*device.Stream](t)(a.Stream(device.Normal))
	var list []device.Ptr
	for range 4 {
		p := must[device.Ptr](t)(a.Alloc(3<<20, s))
		ok(t, s.Fill(p, 5, 3<<20))
		list = append(list, p)
	}
	if list[3] != list[0].Add(9<<20) {
		t.Errorf("the segment doesn't grow in place: %v", list)
	}
	got := make([]byte, 12<<20)
	ok(t, s.CopyOut(ctx, got, list[0])) // across all
	if !bytes.Equal(got, bytes.Repeat([]byte{5}, len(got))) {
		t.Error("the memory isn't what was written")
	}
	for _, p := range list {
		ok(t, a.Dealloc(p))
	}
	ok(t, a.EmptyCache())
	if free, total, err := a.MemInfo(); free != total || err != nil {
		t.Errorf("%d of %d bytes are free after all, %v", free, total, err)
	}
}

func TestGenerators(t *testing.T) {
	_, a, b, _ := open(t)
	g := must[rng.Generator](t)(a.Generator())
	if again := must[rng.Generator](t)(a.Generator()); again != g {
		t.Error("the default generator is another one the second time")
	}
	if o := must[rng.Generator](t)(b.Generator()); o == g || o.InitialSeed() == g.InitialSeed() {
		t.Error("two devices have the same generator, or seed")
	}
	x, y := make([]float32, 8), make([]float32, 8)
	ok(t, g.Seed(42))
	ok(t, rng.Uniform(g, x, 0, 1))
	ok(t, rng.Uniform(a.NewGenerator(42), y, 0, 1))
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("%v and %v from the same seed", x, y)
		}
	}
}

// Memory that a stream uses waits for its work also when the stream was closed meanwhile.
func TestAllocatorOutlivesStreams(t *testing.T) {
	_, a, b, ctx := open(t)
	s := must[*device.Stream](t)(a.NewStream(device.Normal))
	for _, d := range []*device.Device{a, b} {
		o := must[*device.Stream](t)(d.NewStream(device.Normal))
		p := must[device.Ptr](t)(a.Alloc(1000, s))
		ok(t, a.RecordStream(p, o))
		gate := make(chan struct{})
		ok(t, o.HostFunc("hold", func() error { <-gate; return nil }))
		var e device.Event
		ok(t, o.Record(&e))
		ok(t, o.Close())
		ok(t, a.Dealloc(p))
		q := must[device.Ptr](t)(a.Alloc(1000, s))
		if q == p {
			t.Errorf("memory is given out that a closed stream of %v still uses", d)
		}
		close(gate)
		ok(t, e.Synchronize(ctx))
		ok(t, e.Close())
		ok(t, a.Dealloc(q))
	}
	p := must[device.Ptr](t)(a.Alloc(1000, s)) // a use that is over doesn't free what is in use
	o := must[*device.Stream](t)(b.NewStream(device.Normal))
	ok(t, a.RecordStream(p, o))
	ok(t, o.Close())
	q := must[device.Ptr](t)(a.Alloc(1000, s))
	if q == p {
		t.Error("memory is given out twice")
	}
	ok(t, a.Dealloc(q))
	ok(t, a.Dealloc(p))
	ok(t, s.Close())
	ok(t, a.EmptyCache())
}
