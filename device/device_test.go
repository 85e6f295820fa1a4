package device_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes two emulated accelerators and demands that nothing of them is left at the end.
func open(t *testing.T) (rt *device.Runtime, a, b *device.Device, ctx context.Context) {
	t.Helper()
	return openWith(t, 16<<20)
}

func openWith(t *testing.T, memory int) (rt *device.Runtime, a, b *device.Device, ctx context.Context) {
	t.Helper()
	drv, err := accinte.New(accinte.Options{MemoryBytes: memory})
	if err != nil {
		t.Fatal(err)
	}
	rt = device.NewRuntime("accinte", drv)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		if err := rt.EmptyPinnedCache(); err != nil {
			t.Error(err)
		}
		if l := drv.Live(); l.Events+l.Graphs+l.Execs+l.Allocations != 0 {
			t.Errorf("left over: %+v", l)
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	})
	a, _ = rt.Device(0)
	b, _ = rt.Device(1)
	return rt, a, b, ctx
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestScopes(t *testing.T) {
	_, a, b, ctx := open(t)
	stream := must[*device.Stream](t)
	s1, s2 := stream(a.Stream(device.Normal)), stream(b.Stream(device.High))
	check := func(ctx context.Context, dev *device.Device, onA, onB *device.Stream) {
		t.Helper()
		if d, err := device.Current(ctx); d != dev || err != nil {
			t.Errorf("the current device is %v, %v, want %v", d, err, dev)
		}
		for d, want := range map[*device.Device]*device.Stream{a: onA, b: onB} {
			if s, err := d.CurrentStream(ctx); s != want || err != nil {
				t.Errorf("the current stream of %v is %v, %v, want %v", d, s, err, want)
			}
		}
	}
	da, db := stream(a.DefaultStream()), stream(b.DefaultStream())
	on := device.WithDevice(ctx, b)
	check(on, b, da, db)
	inner := device.WithStream(on, s1)
	check(inner, a, s1, db)
	both := device.WithStream(inner, s2)
	check(both, b, s1, s2)
	check(device.WithDevice(both, a), a, s1, s2) // other streams stay what they are
	check(device.WithStream(both, da), a, da, s2)
	check(device.WithStream(device.WithDevice(both, nil), nil), b, s1, s2)
	check(on, b, da, db) // and outer scopes know nothing of inner ones
	if s, err := device.CurrentStream(both); s != s2 || err != nil {
		t.Errorf("the current stream is %v, %v", s, err)
	}
	if d, err := a.Runtime().CurrentOf(both); d != b || err != nil {
		t.Errorf("the type's current device is %v, %v", d, err)
	}
	if d, err := device.NewRuntime("cpu", cpu.New()).CurrentOf(both); err != nil || d.Name() != "cpu" {
		t.Errorf("the current device of another type is %v, %v", d, err)
	}
	ok(t, device.Synchronize(both))
}

func TestStreamPool(t *testing.T) {
	_, a, b, ctx := open(t)
	stream := must[*device.Stream](t)
	def := stream(a.DefaultStream())
	if again := stream(a.DefaultStream()); again != def || def.ID()&1 != 1 || def.ID()>>1&7 != 6 {
		t.Errorf("the default stream is %v, and then %v", def, again)
	}
	var pool []*device.Stream
	ids := map[int64]bool{def.ID(): true}
	for range 32 {
		for _, p := range []device.Priority{device.Normal, device.High} {
			s := stream(a.Stream(p))
			if ids[s.ID()] {
				t.Fatalf("%v comes twice in one round", s)
			}
			ids[s.ID()] = true
			if want := min(p, 1); s.Priority() != want {
				t.Errorf("%v has priority %d, want %d", s, s.Priority(), want)
			}
			pool = append(pool, s)
		}
	}
	for i, s := range pool {
		if got, err := a.StreamByID(s.ID()); got != s || err != nil {
			t.Errorf("stream %d by its ID is %v, %v", i, got, err)
		}
	}
	if s := stream(a.Stream(device.Normal)); s != pool[0] {
		t.Error("the pool doesn't begin again after 32")
	}
	if s := stream(b.Stream(-5)); s.Device() != b || s.Priority() != 0 {
		t.Errorf("%v", s)
	}
	own, other := stream(a.NewStream(device.High)), stream(a.NewStream(device.High))
	if own.ID() == other.ID() || ids[own.ID()] || own.Equal(other) || !own.Equal(own) {
		t.Errorf("own streams %v and %v", own, other)
	}
	ext := a.External(own.Handle())
	if got, err := a.StreamByID(ext.ID()); err != nil || !got.Equal(own) || ext.ID()&1 != 0 {
		t.Errorf("an external stream by its ID is %v, %v", got, err)
	}
	refused(t, def.Close(), device.ErrInvalidHandle)
	refused(t, ext.Close(), device.ErrInvalidHandle)
	refused(t, second(b.StreamByID(pool[5].ID())), device.ErrInvalidHandle)
	ok(t, own.Close())
	ok(t, other.Close())
	refused(t, own.Close(), device.ErrInvalidHandle)
	refused(t, own.Synchronize(ctx), device.ErrInvalidHandle)
	if want := "stream device_type=accinte, device_index=1, stream_id="; fmt.Sprint(stream(b.DefaultStream()))[:len(want)] != want {
		t.Errorf("%v", b)
	}
}

func TestEvents(t *testing.T) {
	_, a, b, ctx := open(t)
	stream := must[*device.Stream](t)
	s, o := stream(a.Stream(device.Normal)), stream(b.Stream(device.Normal))
	var e device.Event
	defer e.Close()
	if done, err := e.Query(); !done || err != nil || e.Device() != nil || e.Handle() != 0 {
		t.Error("a new event stands for something")
	}
	ok(t, e.Synchronize(ctx))
	ok(t, s.Wait(&e))
	refused(t, second(e.Elapsed(&e)), device.ErrInvalidArgument,
		"Both events must be created with argument 'enable_timing=True'.")
	ok(t, s.Record(&e))
	if e.Device() != a || e.Handle() == 0 {
		t.Errorf("the event is of %v", e.Device())
	}
	refused(t, o.Record(&e), device.ErrWrongDevice,
		"Event device accinte:0 does not match recording stream's device accinte:1.")
	ok(t, o.Wait(&e))
	ok(t, o.Synchronize(ctx))

	from, to := &device.Event{Timing: true}, &device.Event{Timing: true}
	defer from.Close()
	defer to.Close()
	refused(t, second(from.Elapsed(to)), device.ErrInvalidArgument,
		"Both events must be recorded before calculating elapsed time.")
	ok(t, s.Record(from))
	ok(t, s.Record(to))
	ok(t, to.Synchronize(ctx))
	if d, err := from.Elapsed(to); d < 0 || err != nil {
		t.Errorf("elapsed: %v, %v", d, err)
	}
	ok(t, to.Close())
	ok(t, to.Close())
	ok(t, o.Record(to)) // used again, on another device
	refused(t, second(from.Elapsed(to)), device.ErrWrongDevice)

	host := device.NewRuntime("cpu", cpu.New())
	c, _ := host.Device(0)
	refused(t, stream(c.DefaultStream()).Wait(&e), device.ErrInvalidHandle, "another type of device")

	order := 0
	gate := make(chan struct{})
	ok(t, s.HostFunc("first", func() error { <-gate; order = 1; return nil }))
	ok(t, o.WaitStream(s))
	ok(t, o.HostFunc("second", func() error { order *= 10; return nil }))
	close(gate)
	ok(t, o.Synchronize(ctx))
	if order != 10 {
		t.Errorf("WaitStream doesn't wait: %d", order)
	}
}

func TestHostAccess(t *testing.T) {
	rt, a, _, ctx := open(t)
	s := must[*device.Stream](t)(a.Stream(device.Normal))
	p := must[device.Ptr](t)(a.Malloc(1000))
	defer a.Free(p)
	refused(t, second(rt.HostBytes(p, 1)), device.ErrHostAccess, "accinte:0")
	pin := must[*device.Pinned](t)(rt.Pin(1000))
	defer pin.Free()
	copy(pin.Bytes(), "pinned")
	if b, err := rt.HostBytes(pin.Ptr().Add(3), 3); string(b) != "ned" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	refused(t, second(rt.HostBytes(pin.Ptr(), 1025)), device.ErrOutOfBounds) // 1000 bytes get 1024

	// Asynchronously from pinned memory, synchronously from and to slices.
	ok(t, s.Copy(p, pin.Ptr(), 6))
	got := make([]byte, 6)
	ok(t, s.CopyOut(ctx, got, p))
	if string(got) != "pinned" {
		t.Errorf("%q", got)
	}
	ok(t, s.CopyIn(ctx, p, nil))
	refused(t, s.CopyIn(ctx, p.Add(998), got), device.ErrOutOfBounds)

	// A copy whose context ends goes on, and the slice is held until it's through.
	gate := make(chan struct{})
	ok(t, s.HostFunc("hold", func() error { <-gate; return nil }))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	refused(t, s.CopyOut(short, got, p), device.ErrTimeout, `"hold"`)
	close(gate)
	ok(t, s.Synchronize(ctx))
}

// A fault at device memory of a registered driver is an error where it's caught.
func TestCatchFault(t *testing.T) {
	register(t, "faulty", emulated)
	d := must[*device.Device](t)(device.Get("faulty:0"))
	p := must[device.Ptr](t)(d.Malloc(100))
	at := *(**byte)(unsafe.Pointer(&p))
	var sink byte
	refused(t, device.CatchFault(func() { sink = *at }), device.ErrHostAccess, "faulty", p.String())
	refused(t, device.CatchFault(func() { *at = sink }), device.ErrHostAccess)
	if got, err := device.Of(p); got != d || err != nil {
		t.Errorf("the pointer is of %v, %v", got, err)
	}
	got, err := device.Of(device.Ptr(uintptr(unsafe.Pointer(&sink))))
	if got != nil || err != nil || !device.HasSeparateMemory() {
		t.Errorf("the host's memory is of %v, %v", got, err)
	}
	ok(t, d.Free(p))
	refused(t, device.CatchFault(func() { sink = *at }), device.ErrHostAccess) // freed, and still no host memory
	refused(t, second(device.Of(p)), device.ErrInvalidPointer)
	ok(t, device.CatchFault(func() {}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("another panic is swallowed")
			}
		}()
		device.CatchFault(func() { panic("other") })
	}()
}

func TestGraph(t *testing.T) {
	_, a, _, ctx := open(t)
	s := must[*device.Stream](t)(a.Stream(device.Normal))
	p := must[device.Ptr](t)(a.Malloc(8))
	defer a.Free(p)
	add := func(v byte) func() error {
		return func() error {
			if !s.Capturing() {
				t.Error("not capturing")
			}
			return s.Launch("add", []device.Span{{Ptr: p, Bytes: 8}}, func(views []unsafe.Pointer) error {
				for i, b := range unsafe.Slice((*byte)(views[0]), 8) {
					unsafe.Slice((*byte)(views[0]), 8)[i] = b + v
				}
				return nil
			})
		}
	}
	ok(t, s.Fill(p, 0, 8))
	g := must[*device.Graph](t)(device.Capture(s, add(1)))
	ok(t, g.Replay(s))
	ok(t, g.Replay(s))
	ok(t, g.Update(s, add(10)))
	ok(t, g.Replay(s))
	got := make([]byte, 8)
	ok(t, s.CopyOut(ctx, got, p))
	if !bytes.Equal(got, bytes.Repeat([]byte{12}, 8)) {
		t.Errorf("%v", got)
	}
	if nodes, err := g.Nodes(); err != nil || len(nodes) != 1 || nodes[0].Name != "add" ||
		nodes[0].Kind != device.ActivityKernel {
		t.Errorf("%v, %v", nodes, err)
	}
	ok(t, g.Close())
	ok(t, g.Close())
	refused(t, g.Replay(s), device.ErrInvalidHandle, "closed")

	fail := errors.New("no")
	if _, err := device.Capture(s, func() error { return fail }); !errors.Is(err, fail) {
		t.Error(err)
	}
	refused(t, second(device.Capture(s, func() error { return s.CopyIn(ctx, p, got) })), device.ErrCapture, "pinned")
	refused(t, second(device.Capture(s, func() error { s.Synchronize(ctx); return nil })), device.ErrCapture)
	func() {
		defer func() { recover() }()
		device.Capture(s, func() error { panic("on purpose") })
	}()
	if s.Capturing() {
		t.Error("a panic leaves the stream capturing")
	}
	ok(t, s.Synchronize(ctx))
}

func TestProfile(t *testing.T) {
	rt, a, b, ctx := open(t)
	stream := must[*device.Stream](t)
	s, o := stream(a.Stream(device.Normal)), stream(b.Stream(device.Normal))
	p := must[device.Ptr](t)(a.Malloc(4096))
	defer a.Free(p)
	prof := must[*device.Profile](t)(device.StartProfile(rt))
	refused(t, second(device.StartProfile(rt)), device.ErrInvalidArgument)
	end := prof.Range("step")
	ok(t, s.Fill(p, 1, 4096))
	ok(t, o.HostFunc("mine", func() error { return nil }))
	ok(t, s.Synchronize(ctx))
	ok(t, o.Synchronize(ctx))
	end()
	prof.Note(device.Range{Name: "operator", Start: time.Now(), End: time.Now(), Thread: 7})
	tr := must[*device.Trace](t)(prof.Stop())
	var out bytes.Buffer
	ok(t, tr.WriteChrome(&out))
	var doc struct {
		TraceEvents []struct {
			Name, Ph, Cat string
			PID           int
			Ts, Dur       *float64
			ID            uint64
			Args          map[string]any
		}
	}
	ok(t, json.Unmarshal(out.Bytes(), &doc))
	count := map[string]int{}
	flows := map[uint64]string{}
	for _, e := range doc.TraceEvents {
		count[e.Ph+" "+e.Name]++
		if e.Ph == "X" && (e.Ts == nil || e.Dur == nil || *e.Dur < 0) {
			t.Errorf("%+v", e)
		}
		if e.Ph == "s" || e.Ph == "f" {
			flows[e.ID] += e.Ph
		}
		if e.Ph == "M" {
			count[fmt.Sprint(e.Args["name"])]++
		}
	}
	for _, want := range []string{"X step", "X fill 4096 bytes", "X mine", "X fill", "X host function", "host",
		"accinte:0", "accinte:1"} {
		if count[want] != 1 {
			t.Errorf("%q is there %d times", want, count[want])
		}
	}
	for id, f := range flows {
		if f != "sf" {
			t.Errorf("arrow %d is %q", id, f)
		}
	}
	if len(flows) != 2 {
		t.Errorf("%d arrows", len(flows))
	}
}

// Plain drivers have none of what is optional, and say so.
func TestUnsupported(t *testing.T) {
	rt := device.NewRuntime("plain", struct{ device.Driver }{cpu.New()})
	d, _ := rt.Device(0)
	s := must[*device.Stream](t)(d.DefaultStream())
	refused(t, s.Launch("k", nil, nil), device.ErrUnsupported, "plain", "driver.HostKernels")
	refused(t, second(device.Capture(s, nil)), device.ErrUnsupported, "driver.Graphs")
	refused(t, second(device.StartProfile(rt)), device.ErrUnsupported, "driver.Tracer")
	refused(t, d.SetPeerAccess(d, true), device.ErrUnsupported, "driver.Peers")
	if s.Capturing() {
		t.Error("a driver without graphs captures")
	}
}

func Example() {
	d, err := device.Get("accinte:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, _ := d.Stream(device.High)
	p, _ := d.Malloc(5)
	defer d.Free(p)
	if err := s.CopyIn(ctx, p, []byte("hello")); err != nil {
		fmt.Println(err)
	}
	err = s.Launch("upper", []device.Span{{Ptr: p, Bytes: 5}}, func(views []unsafe.Pointer) error {
		for i, c := range unsafe.Slice((*byte)(views[0]), 5) {
			unsafe.Slice((*byte)(views[0]), 5)[i] = c - 'a' + 'A'
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	out := make([]byte, 5)
	if err := s.CopyOut(ctx, out, p); err != nil {
		fmt.Println(err)
	}
	fmt.Println(d, string(out))
	// Output: accinte:1 HELLO
}

// A program that fails on a device learns of it when it waits, and can go on.
func ExampleStream_Recover() {
	d, err := device.Get("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	s, _ := d.NewStream(device.Normal)
	defer s.Close()
	s.HostFunc("open", func() error { _, err := os.Open("/no/such/file"); return err })
	err = s.Synchronize(ctx)
	fmt.Println(errors.Is(err, device.ErrFailed), errors.Is(err, os.ErrNotExist))
	s.Recover(ctx)
	fmt.Println(s.Synchronize(ctx))
	// Output:
	// true true
	// <nil>
}
