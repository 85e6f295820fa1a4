package device_test

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
)

// A captured kernel draws new numbers at each replay, those that it would draw if it were launched each time, also when
// replays are enqueued before any has run, and on several streams.
func TestGraphsDrawNewNumbers(t *testing.T) {
	_, d, _, ctx := open(t)
	const n, replays = 1000, 5
	gen, err := d.Generator()
	if err != nil {
		t.Fatal(err)
	}
	g := gen.(*rng.CUDA)
	s, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, err := d.Malloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(p)
	var got [][]float32
	launch := func(g *rng.CUDA, s *device.Stream) error {
		draw := g.Reserve(rng.GPU{}.Increment(n, 4, false))
		return s.Launch("uniform", []device.Span{{Ptr: p, Bytes: 4 * n}}, func(views []unsafe.Pointer) error {
			x := unsafe.Slice((*float32)(views[0]), n)
			err := rng.Uniform(draw.Generator(), x, 0, 1)
			got = append(got, slices.Clone(x)) // one kernel runs at a time
			return err
		})
	}
	if err := g.Seed(11); err != nil {
		t.Fatal(err)
	}
	graph, err := device.Capture(s, func() error { return launch(g, s) })
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
		t.Fatal(err)
	}
	for range replays {
		if err := graph.Replay(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, on := range []*device.Stream{other, s, other} {
		if err := graph.Replay(on); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if err := errors.Join(s.Synchronize(ctx), other.Synchronize(ctx)); err != nil {
		t.Fatal(err)
	}
	twin := rng.NewCUDA(11, rng.GPU{})
	want := make([]float32, n)
	for i := range replays + 3 {
		if err := rng.Uniform(twin, want, 0, 1); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[i], want) {
			t.Fatalf("replay %d has drawn other numbers", i)
		}
	}
	if a, b := must[uint64](t)(g.Offset()), must[uint64](t)(twin.Offset()); a != b {
		t.Errorf("the generator is at %d, want %d", a, b)
	}
	if _, err := device.Capture(s, func() error { return graph.Replay(s) }); !errors.Is(err, device.ErrCapture) {
		t.Errorf("a part of another graph: %v", err)
	}
	if _, err := device.Capture(s, func() error { return g.Seed(1) }); !errors.Is(err, rng.ErrInvalidArgument) {
		t.Errorf("seeding while capturing: %v", err)
	}
	if err := errors.Join(graph.Close(), g.Seed(1)); err != nil { // the failed capture has ended for the generator, too
		t.Error(err)
	}
}

// A graph draws from another generator than the device's own if it's captured with it: each replay moves it on.
func TestGraphsDrawFromOtherGenerators(t *testing.T) {
	_, d, _, ctx := open(t)
	s, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own := must[rng.Generator](t)(d.Generator()).(*rng.CUDA)
	g, stranger := rng.NewCUDA(3, rng.GPU{}), rng.NewCUDA(5, rng.GPU{})
	if err := errors.Join(own.Seed(1), g.SetOffset(40)); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	draw := func() error {
		a, b := own.Reserve(4), g.Reserve(8)
		state, err := d.RandomState(s, g)
		if err != nil {
			return err
		}
		if _, err := d.RandomState(s, stranger); !errors.Is(err, device.ErrCapture) {
			t.Errorf("a generator that isn't the graph's: %v", err)
		}
		return s.Launch("read", []device.Span{{Ptr: state, Bytes: 16}}, func(views []unsafe.Pointer) error {
			got = append(got, unsafe.Slice((*uint64)(views[0]), 2)...)
			got = append(got, must[uint64](t)(a.Generator().Offset()), must[uint64](t)(b.Generator().Offset()))
			return nil
		})
	}
	graph, err := device.Capture(s, draw, device.Drawing(g, own, g))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(graph.Replay(s), graph.Replay(s), s.Synchronize(ctx), g.Seed(9), graph.Update(s, draw),
		graph.Replay(s), s.Synchronize(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{3, 40, 0, 40, 3, 48, 4, 48, 9, 0, 8, 0}; !slices.Equal(got, want) {
		t.Errorf("replays began at %d, want %d", got, want)
	}
	if a := must[uint64](t)(g.Offset()); a != 8 {
		t.Errorf("the generator is at %d", a)
	}
	if err := graph.Close(); err != nil {
		t.Error(err)
	}
}

// A captured kernel finds the seed and the offset of each replay in memory of the device, and others the same from Go.
func TestGraphsHaveTheStateInMemory(t *testing.T) {
	_, d, _, ctx := open(t)
	gen, err := d.Generator()
	if err != nil {
		t.Fatal(err)
	}
	g := gen.(*rng.CUDA)
	s, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := g.Seed(5); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RandomState(s, g); !errors.Is(err, device.ErrCapture) {
		t.Errorf("without a capture: %v", err)
	}
	var got []uint64
	var offset uint64
	draw := func() error {
		g.Reserve(8)
		own := g.Reserve(4)
		offset, _ = own.Captured()
		state, err := d.RandomState(s, g)
		if err != nil {
			return err
		}
		if again, err := d.RandomState(s, g); err != nil || again != state {
			t.Errorf("another state at %#x, not %#x, %v", again, state, err)
		}
		return s.Launch("read", []device.Span{{Ptr: state, Bytes: 16}}, func(views []unsafe.Pointer) error {
			at := must[uint64](t)(own.Generator().Offset())
			got = append(got, slices.Concat(unsafe.Slice((*uint64)(views[0]), 2), []uint64{at})...)
			return nil
		})
	}
	graph, err := device.Capture(s, draw)
	if err != nil {
		t.Fatal(err)
	}
	if offset != 8 {
		t.Errorf("the second draw is at %d", offset)
	}
	before := g.Reserve(4)
	if _, captured := before.Captured(); captured {
		t.Error("a draw after the capture belongs to it")
	}
	for range 2 {
		if err := graph.Replay(s); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(s.Synchronize(ctx), g.Seed(7), graph.Update(s, draw), graph.Replay(s), s.Synchronize(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{5, 4, 12, 5, 16, 24, 7, 0, 8}; !slices.Equal(got, want) {
		t.Errorf("replays began at %d, want %d", got, want)
	}
	failed := errors.New("failed")
	if _, err := device.Capture(s, func() error { return errors.Join(draw(), failed) }); !errors.Is(err, failed) {
		t.Errorf("a failed capture: %v", err)
	}
	c, err := d.Allocator()
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Close(); err != nil {
		t.Error(err)
	}
	if n := c.Stats().AllocatedBytes[0].Current; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
