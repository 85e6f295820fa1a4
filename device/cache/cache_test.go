package cache

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// TestSizes has the original's examples: which block and which segment a request gets.
func TestSizes(t *testing.T) {
	for _, test := range []struct {
		text           string
		request        int64
		block, segment int64
		free           int64 // the free block that is left
	}{
		{"", 1, 512, 2 << 20, 2<<20 - 512},
		{"", 512, 512, 2 << 20, 2<<20 - 512},
		{"", 1000, 1024, 2 << 20, 2<<20 - 1024},
		{"", 1 << 20, 1 << 20, 2 << 20, 1 << 20},
		{"", 1<<20 + 1, 1<<20 + 512, 20 << 20, 19<<20 - 512},
		{"", 5 << 20, 5 << 20, 20 << 20, 15 << 20},
		{"", 10<<20 - 1, 10 << 20, 10 << 20, 0}, // rounded to 512 bytes it isn't below 10 MiB
		{"", 12 << 20, 12 << 20, 12 << 20, 0},
		{"", 12<<20 + 1, 12<<20 + 512, 14 << 20, 2<<20 - 512},
		{"", 25<<20 + 1, 26 << 20, 26 << 20, 0}, // a rest of up to 1 MiB stays with the block
		{"large_segment_size_mb:40", 5 << 20, 5 << 20, 40 << 20, 35 << 20},
		{"roundup_power2_divisions:4", 1200, 1536, 2 << 20, 2<<20 - 1536},
		{"roundup_power2_divisions:4", 70 << 20, 80 << 20, 80 << 20, 0},
		{"roundup_power2_divisions:4", 64 << 20, 64 << 20, 64 << 20, 0},
		{"roundup_power2_divisions:[64:8,256:4,>:1]", 70 << 20, 72 << 20, 72 << 20, 0},
		{"roundup_power2_divisions:[64:8,256:4,>:1]", 300 << 20, 320 << 20, 320 << 20, 0},
		{"roundup_power2_divisions:[64:8,256:4,>:1]", 600<<20 + 1, 600<<20 + 512, 602 << 20, 2<<20 - 512},
	} {
		c := open(t, newFake(1<<40), conf(t, test.text))
		p := malloc(t, c, test.request, 0)
		size, err := c.Size(p)
		must(t, err)
		_, segment, err := c.Segment(p)
		must(t, err)
		s := c.Stats()
		if rest := s.InactiveSplitBytes[All].Current; size != test.block || segment != test.segment || rest != test.free {
			t.Errorf("%s: %d bytes get %d of %d, %d left; want %d of %d, %d left", test.text, test.request, size, segment, rest,
				test.block, test.segment, test.free)
		}
		if s.RequestedBytes[All].Current != test.request || s.MaxSplitSize != -1 {
			t.Errorf("%d bytes requested, want %d; %d", s.RequestedBytes[All].Current, test.request, s.MaxSplitSize)
		}
	}
}

// TestBestFit frees blocks of three sizes apart from each other and looks which of them is reused.
func TestBestFit(t *testing.T) {
	c := open(t, newFake(1<<30))
	var p []uintptr
	for _, n := range []int64{4096, 512, 1024, 512, 2048, 512} {
		p = append(p, malloc(t, c, n, 0))
	}
	for _, i := range []int{0, 2, 4} {
		must(t, c.Free(p[i]))
	}
	if got := malloc(t, c, 1500, 0); got != p[4] {
		t.Errorf("1500 bytes at %#x, want those of 2048 at %#x", got, p[4])
	}
	if got := malloc(t, c, 1500, 1); got == p[0] {
		t.Error("another stream got the memory")
	}
	if got := malloc(t, c, 512, 0); got != p[4]+1536 {
		t.Errorf("512 bytes at %#x, want what is left of 2048 at %#x", got, p[4]+1536)
	}
	if got := malloc(t, c, 512, 0); got != p[2] {
		t.Errorf("512 bytes at %#x, want the front of 1024 at %#x", got, p[2])
	}
	verify(t, c)
}

// TestRecordStream frees memory that two other streams use.
func TestRecordStream(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	p := malloc(t, c, 1000, 0)
	for _, s := range []Stream{1, 2, 1, 0} {
		must(t, c.RecordStream(p, s))
	}
	must(t, c.RecordStream(0, 1))
	must(t, c.Free(p))
	if len(d.events) != 2 {
		t.Errorf("%d events, want one for each other stream", len(d.events))
	}
	if s := c.Stats(); s.Active[All].Current != 1 || s.Allocation[All].Current != 0 {
		t.Errorf("freed and awaited, but %+v", s)
	}
	if got := c.Snapshot().Segments[0].Blocks[0].State; got != StateAwaitingFree {
		t.Error(got)
	}
	d.run(1)
	if q := malloc(t, c, 1000, 0); q == p {
		t.Error("reused while a stream still uses it")
	}
	d.run(2)
	if q := malloc(t, c, 1000, 0); q != p {
		t.Error("not reused after all streams are done")
	}
	if len(d.events) != 0 {
		t.Error("events are left")
	}
}

// TestHold frees memory that work will use which no stream has yet.
func TestHold(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	p := malloc(t, c, 1000, 0)
	releases := []func() error{c.Hold(p), c.Hold(p + 8)}
	must(t, c.Free(p))
	for _, release := range releases {
		if q := malloc(t, c, 1000, 0); q == p {
			t.Error("reused while it's held")
		}
		must(t, release())
	}
	if q := malloc(t, c, 1000, 0); q != p {
		t.Error("not reused after its release")
	}
	must(t, c.Hold(1)()) // of no allocation
}

// TestWrongPointers has every way to hand over a bad argument.
func TestWrongPointers(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	p := malloc(t, c, 1000, 0)
	q := malloc(t, c, 3<<20, 0)
	freed := malloc(t, c, 700, 0)
	must(t, c.Free(freed))
	gone := malloc(t, c, 50<<20, 0)
	must(t, c.Free(gone))
	must(t, c.EmptyCache())
	before := c.Stats()
	for name, test := range map[string]struct {
		err  error
		kind error
		text string
	}{
		"double free":           {c.Free(freed), ErrDoubleFree, "already free"},
		"interior":              {c.Free(q + 512), ErrInteriorPointer, "not the beginning"},
		"interior, odd":         {c.Free(p + 1), ErrInteriorPointer, "1024 bytes from"},
		"foreign":               {c.Free(12345), ErrForeignPointer, "0x3039"},
		"freed and given back":  {c.Free(gone), ErrForeignPointer, ""},
		"record interior":       {c.RecordStream(p+8, 1), ErrInteriorPointer, "RecordStream"},
		"record freed":          {c.RecordStream(freed, 1), ErrDoubleFree, ""},
		"record unknown stream": {c.RecordStream(p, 99), ErrUnknownStream, "0x63"},
		"unknown stream":        {second(c.Malloc(5, 77)), ErrUnknownStream, ""},
		"negative":              {second(c.Malloc(-5, 0)), ErrInvalidArgument, "-5"},
		"too large":             {second(c.Malloc(1<<61, 0)), ErrOutOfMemory, "2147483648.00 GiB"},
		"size of foreign":       {second(c.Size(1)), ErrForeignPointer, "Size"},
		"pool 0":                {c.BeginPool(PoolID{}, nil, false), ErrInvalidArgument, ""},
		"end":                   {c.EndPool(PoolID{0, 99}), ErrUnknownPool, "(0, 99)"},
		"release":               {c.ReleasePool(PoolID{0, 99}), ErrUnknownPool, ""},
		"fraction":              {c.SetFraction(1.5), ErrInvalidArgument, ""},
		"history":               {c.RecordHistory(-1, false), ErrInvalidArgument, ""},
		"no driver":             {second(New(nil, Options{})), ErrInvalidArgument, ""},
		"can't reserve": {second(New(d, Options{Allocator: config.Allocator{Expandable: true, Fraction: 1}})),
			ErrInvalidArgument, "reserve"},
	} {
		if !errors.Is(test.err, test.kind) || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	before.NumOOMs++
	if after := c.Stats(); !reflect.DeepEqual(before, after) {
		t.Errorf("errors changed %+v\nto %+v", before, after)
	}
	verify(t, c)
	must(t, c.Free(0))
	if z, err := c.Malloc(0, 0); z != 0 || err != nil {
		t.Error(z, err)
	}
	must(t, c.Free(p))
	must(t, c.Free(q))
}

func second[T any](_ T, err error) error { return err }

// TestDriverErrors lets the driver fail with something else than a lack of memory.
func TestDriverErrors(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	p := malloc(t, c, 1000, 0)
	must(t, c.RecordStream(p, 1))
	d.fail = errors.New("the device is lost")
	if err := c.Free(p); !errors.Is(err, d.fail) {
		t.Error(err)
	}
	if _, err := c.Malloc(30<<20, 0); !errors.Is(err, d.fail) || errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	verify(t, c)
	d.fail = nil
	if n, err := c.Size(p); n != 1024 || err != nil {
		t.Error("a free that failed took the memory away:", n, err)
	}
	must(t, c.Free(p))
}

// TestOutOfMemory has the steps that are taken when memory runs out, and the error in the end.
func TestOutOfMemory(t *testing.T) {
	d := newFake(100 << 20)
	var told *OutOfMemoryError
	pressure := 0
	c := open(t, d, func(o *Options) {
		o.Device = 3
		o.OnOutOfMemory = func(e *OutOfMemoryError) { told = e }
		o.OnPressure = func() bool { pressure++; return false }
	})
	must(t, c.RecordHistory(100, false))
	p := malloc(t, c, 60<<20, 0)
	must(t, c.Free(p))
	q := malloc(t, c, 70<<20, 0) // the 60 MiB go back first
	if s := c.Stats(); s.NumAllocRetries != 1 || s.NumDeviceFree != 1 || s.NumSyncAllStreams != 1 || s.NumOOMs != 0 {
		t.Errorf("%+v", s)
	}
	_, err := c.Malloc(31<<20, 0)
	var oom *OutOfMemoryError
	if !errors.As(err, &oom) || !errors.Is(err, ErrOutOfMemory) || told != oom {
		t.Fatal(err)
	}
	want := OutOfMemoryError{Device: 3, Requested: 31 << 20, Total: 100 << 20, Free: 30 << 20, Allocated: 70 << 20,
		Reserved: 70 << 20, Err: oom.Err}
	if *oom != want || pressure != 3 {
		t.Errorf("%+v, pressure %d", oom, pressure)
	}
	for _, part := range []string{"tried to allocate 31.00 MiB", "Device 3", "100.00 MiB", "30.00 MiB is free",
		"expandable_segments:True"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in: %v", part, err)
		}
	}
	trace := c.Snapshot().Traces[3]
	if e := trace[len(trace)-2]; e.Action != "oom" || e.DeviceFree != 30<<20 || e.Size != 31<<20 || e.Addr != 0 {
		t.Errorf("%+v", e)
	}
	must(t, c.Free(q))
	if c.Stats().NumOOMs != 1 {
		t.Error(c.Stats().NumOOMs)
	}
}

// TestPressure frees memory elsewhere when asked.
func TestPressure(t *testing.T) {
	d := newFake(40 << 20)
	var c *Cache
	var held uintptr
	c = open(t, d, func(o *Options) { o.OnPressure = func() bool { return held != 0 && c.Free(held) == nil } })
	held = malloc(t, c, 30<<20, 0)
	if p := malloc(t, c, 30<<20, 0); p != held || d.calls != 1 {
		t.Errorf("%#x after %d calls of the driver", p, d.calls)
	}
}

func TestFraction(t *testing.T) {
	c := open(t, newFake(100<<20), conf(t, "per_process_memory_fraction:0.5"))
	p := malloc(t, c, 40<<20, 0)
	_, err := c.Malloc(20<<20, 0)
	if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "50.00 MiB allowed") {
		t.Error(err)
	}
	must(t, c.SetFraction(1))
	must(t, c.Free(malloc(t, c, 20<<20, 0)))
	must(t, c.Free(p))
}

// TestGarbage gives back what was free for long, and keeps what is used again and again.
func TestGarbage(t *testing.T) {
	c := open(t, newFake(100<<20), conf(t, "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9"))
	old := malloc(t, c, 20<<20, 0)
	hot := malloc(t, c, 24<<20, 0)
	must(t, c.Free(old))
	must(t, c.Free(hot))
	for range 10 {
		must(t, c.Free(malloc(t, c, 24<<20, 0)))
	}
	big := malloc(t, c, 18<<20, 1) // 44 MiB of 45 are reserved: nothing is collected yet
	if s := c.Stats(); s.NumDeviceFree != 0 {
		t.Errorf("%d segments given back", s.NumDeviceFree)
	}
	malloc(t, c, 10<<20, 1) // 62 MiB are: 17 too many
	if s := c.Stats(); s.NumDeviceFree != 1 || s.NumAllocRetries != 0 {
		t.Errorf("%d segments given back, want the one that wasn't used", s.NumDeviceFree)
	}
	if _, _, err := c.Segment(big); err != nil {
		t.Error(err)
	}
	if got := malloc(t, c, 24<<20, 0); got != hot {
		t.Error("what is used again and again was given back")
	}
	verify(t, c)
}

// TestMaxSplit doesn't split large blocks, doesn't waste them on small requests, and gives them back one by one.
func TestMaxSplit(t *testing.T) {
	d := newFake(200 << 20)
	c := open(t, d, conf(t, "max_split_size_mb:30"))
	if n := c.Stats().MaxSplitSize; n != 30<<20 {
		t.Error(n)
	}
	a := malloc(t, c, 60<<20, 0)
	b := malloc(t, c, 40<<20, 0)
	if s := c.Stats(); s.OversizeAllocations.Current != 2 || s.OversizeSegments.Current != 2 {
		t.Errorf("%+v", s)
	}
	must(t, c.Free(a))
	must(t, c.Free(b))
	if p := malloc(t, c, 20<<20, 0); p == a || p == b {
		t.Error("a small request got a block that isn't split")
	}
	if p := malloc(t, c, 35<<20, 0); p != b {
		t.Error("40 MiB aren't used for 35")
	}
	p := malloc(t, c, 35<<20, 0)
	if p == a {
		t.Error("60 MiB are used for 35: 20 MiB or more are wasted")
	}
	must(t, c.Free(p))
	// 20 + 40 + 36 + 60 of 200 MiB are reserved: 90 take the 60 and the 36.
	malloc(t, c, 90<<20, 0)
	if s := c.Stats(); s.NumDeviceFree != 2 || s.NumAllocRetries != 0 {
		t.Errorf("%d given back, %d retries: want the oversize blocks alone", s.NumDeviceFree, s.NumAllocRetries)
	}
	verify(t, c)
}

// TestExpandable lets one segment grow and shrink.
func TestExpandable(t *testing.T) {
	d := newFake(200 << 20)
	c := open(t, expandableFake{d}, conf(t, "expandable_segments:True"))
	must(t, c.RecordHistory(100, false))
	a := malloc(t, c, 30<<20, 0)
	b := malloc(t, c, 30<<20, 0)
	if b != a+30<<20 || d.used != 60<<20 || len(d.reserved) != 1 {
		t.Fatalf("%#x and %#x, %d mapped", a, b, d.used)
	}
	must(t, c.Free(a))
	must(t, c.Free(b))
	if p := malloc(t, c, 100<<20, 0); p != a || d.used != 100<<20 {
		t.Errorf("100 MiB at %#x with %d mapped, want the 60 to grow", p, d.used)
	} else {
		must(t, c.Free(p))
	}
	small := malloc(t, c, 500, 0)
	if len(d.reserved) != 2 || d.used != 102<<20 {
		t.Errorf("%d reservations, %d mapped", len(d.reserved), d.used)
	}
	mid := malloc(t, c, 70<<20, 0)
	keep := malloc(t, c, 5<<20, 0)
	must(t, c.Free(mid))
	must(t, c.EmptyCache()) // whole pages before and behind the 5 MiB
	if d.used != 22<<20 {
		t.Errorf("%d mapped, want a page of 20 MiB and one of 2", d.used)
	}
	if snap := c.Snapshot(); len(snap.Segments) != 2 || !snap.Segments[1].Expandable && !snap.Segments[0].Expandable {
		t.Errorf("%+v", snap.Segments)
	}
	verify(t, c)
	for _, p := range []uintptr{small, keep} {
		must(t, c.Free(p))
	}
	must(t, c.EmptyCache())
	if d.used != 0 || len(d.reserved) != 0 || len(c.segments) != 0 {
		t.Error("memory is left")
	}
	// A reservation that nothing can be mapped into goes away again.
	if _, err := c.Malloc(300<<20, 0); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	verify(t, c)
	must(t, c.EmptyCache())
	if d.used != 0 || len(d.reserved) != 0 {
		t.Errorf("%d mapped, %d reservations", d.used, len(d.reserved))
	}
}

// TestPools keeps the memory of a graph apart until the graph is gone.
func TestPools(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	common := malloc(t, c, 3<<20, 0)
	must(t, c.Free(common))
	id := NewPoolID()
	must(t, c.BeginPool(id, func(s Stream) bool { return s == 1 }, true))
	if err := c.BeginPool(id, nil, false); !errors.Is(err, ErrInvalidArgument) {
		t.Error("a pool begins twice:", err)
	}
	if p := malloc(t, c, 3<<20, 0); p != common {
		t.Error("another stream is captured, too")
	}
	p := malloc(t, c, 3<<20, 1)
	must(t, c.RecordStream(p, 2))
	must(t, c.Free(p))
	if len(d.events) != 0 {
		t.Error("an event is recorded while capturing")
	}
	if err := c.EmptyCache(); !errors.Is(err, ErrInvalidArgument) {
		t.Error("EmptyCache while capturing:", err)
	}
	if q := malloc(t, c, 3<<20, 1); q == p {
		t.Error("reused while another stream uses it")
	}
	must(t, c.EndPool(id))
	d.run(2)
	malloc(t, c, 100, 0)
	if len(d.events) != 1 {
		t.Errorf("%d events after the capture, want the one that was put off", len(d.events))
	}
	verify(t, c)
	must(t, c.EmptyCache())
	pool := func() (n int) {
		for _, s := range c.Snapshot().Segments {
			if s.Pool == id {
				n++
			}
		}
		return n
	}
	if pool() != 1 {
		t.Error("a graph's memory was given back")
	}
	if q := malloc(t, c, 3<<20, 1); q == p {
		t.Error("an ordinary request got a graph's memory")
	}
	must(t, c.ReleasePool(id))
	if err := c.ReleasePool(id); !errors.Is(err, ErrUnknownPool) {
		t.Error(err)
	}
	must(t, c.EmptyCache())
	if pool() != 1 { // one block is still allocated
		t.Errorf("%d segments of the pool", pool())
	}
}

func TestForgetStream(t *testing.T) {
	d := newFake(1 << 30)
	c := open(t, d)
	p := malloc(t, c, 30<<20, 2)
	must(t, c.Free(p))
	must(t, c.Free(malloc(t, c, 30<<20, 1)))
	must(t, c.ForgetStream(2))
	if len(d.live) != 1 {
		t.Errorf("%d segments, want that of stream 1", len(d.live))
	}
	d.streams = 2
	if _, err := c.Malloc(5, 2); !errors.Is(err, ErrUnknownStream) {
		t.Error(err)
	}
}

// Memory that is freed after its stream was forgotten goes back to the driver: no allocation could get it any more.
func TestFreeAfterForgetStream(t *testing.T) {
	for _, text := range []string{"", "expandable_segments:True"} {
		t.Run(text, func(t *testing.T) {
			d := newFake(1 << 30)
			c := open(t, expandableFake{d}, conf(t, text))
			whole, used := malloc(t, c, 40<<20, 2), malloc(t, c, 40<<20, 2)
			one, other, small := malloc(t, c, 5<<20, 2), malloc(t, c, 5<<20, 2), malloc(t, c, 1000, 2)
			must(t, c.RecordStream(used, 1))
			id := NewPoolID()
			must(t, c.BeginPool(id, nil, true))
			captured := malloc(t, c, 40<<20, 2)
			must(t, c.ForgetStream(2))
			must(t, c.Free(whole)) // while a graph is captured nothing goes back, but at its end
			must(t, c.EndPool(id))
			for _, p := range []uintptr{used, one, small, other, captured} {
				must(t, c.Free(p))
			}
			if s := c.Stats(); s.ReservedBytes[All].Current != s.ActiveBytes[All].Current+40<<20 {
				t.Errorf("%d bytes reserved; want %d that stream 1 uses, and those of a graph",
					s.ReservedBytes[All].Current, s.ActiveBytes[All].Current)
			}
			d.run(1)
			must(t, c.Free(malloc(t, c, 1000, 1))) // looks for what is done
			must(t, c.ForgetStream(1))
			if n := c.Stats().ReservedBytes[All].Current; n != 40<<20 {
				t.Errorf("%d bytes reserved, want those of a graph", n)
			}
			verify(t, c)
			must(t, c.ReleasePool(id))
			if n := c.Stats().ReservedBytes[All].Current; n != 0 {
				t.Errorf("%d bytes reserved in the end", n)
			}
		})
	}
}

func TestStatsNames(t *testing.T) {
	c := open(t, newFake(1<<30))
	p := malloc(t, c, 1000, 0)
	malloc(t, c, 5<<20, 0)
	must(t, c.Free(p))
	m := c.Stats().Map()
	for name, want := range map[string]int64{
		"allocation.all.current": 1, "allocation.all.peak": 2, "allocation.small_pool.freed": 1,
		"allocated_bytes.all.current":     5 << 20,
		"allocated_bytes.small_pool.peak": 1024, "reserved_bytes.large_pool.current": 20 << 20, "segment.all.current": 2,
		"inactive_split.large_pool.current": 1, "inactive_split_bytes.all.current": 15 << 20,
		"requested_bytes.all.allocated": 5<<20 + 1000,
		"oversize_segments.current":     0, "num_device_alloc": 2, "max_split_size": -1,
	} {
		if m[name] != want {
			t.Errorf("%s is %d, want %d", name, m[name], want)
		}
	}
	if want := 9*3*4 + 2*4 + 6; len(m) != want {
		t.Errorf("%d names, want %d", len(m), want)
	}
	c.ResetPeakStats()
	c.ResetAccumulatedStats()
	m = c.Stats().Map()
	if m["allocation.all.peak"] != 1 || m["allocation.all.allocated"] != 0 || m["num_device_alloc"] != 0 ||
		m["max_split_size"] != -1 || m["allocation.all.current"] != 1 {
		t.Errorf("after the resets %v", m)
	}
}

// TestConcurrent uses one cache on many goroutines, each of which owns what it allocates.
func TestConcurrent(t *testing.T) {
	for _, unlock := range []bool{false, true} {
		d := newFake(1 << 40)
		c := open(t, d, func(o *Options) { o.UnlockForDriver = unlock })
		must(t, c.RecordHistory(100, true))
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				var mine []uintptr
				for range 1500 {
					if len(mine) > 20 || len(mine) > 0 && r.IntN(2) == 0 {
						if err := c.Free(mine[0]); err != nil {
							t.Error(err)
						}
						mine = mine[1:]
						continue
					}
					p, err := c.Malloc(randomSize(r), Stream(g%3))
					if err != nil {
						t.Error(err)
						continue
					}
					if r.IntN(10) == 0 {
						if err := c.RecordStream(p, 3); err != nil {
							t.Error(err)
						}
					}
					if r.IntN(100) == 0 {
						c.Snapshot()
						c.Stats()
						if err := c.EmptyCache(); err != nil {
							t.Error(err)
						}
					}
					mine = append(mine, p)
				}
				for _, p := range mine {
					if err := c.Free(p); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		must(t, c.EmptyCache())
		verify(t, c)
		if d.used != 0 {
			t.Errorf("%d bytes are left", d.used)
		}
	}
}

func TestAllocs(t *testing.T) {
	c := open(t, newFake(1<<40))
	var p [100]uintptr
	sizes := []int64{1000, 5 << 20, 300_000, 12 << 20, 512}
	round := func() {
		for i := range p {
			p[i], _ = c.Malloc(sizes[i%len(sizes)], Stream(i%2))
		}
		for i := range p {
			if err := c.Free(p[(i*37)%len(p)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, history := range []bool{false, true} {
		if history {
			must(t, c.RecordHistory(1000, false))
		}
		round()
		if n := testing.AllocsPerRun(50, round); n != 0 {
			t.Errorf("history %v: %v allocations for 100 pairs", history, n)
		}
	}
	calls := c.Stats().NumDeviceAlloc
	round()
	if c.Stats().NumDeviceAlloc != calls {
		t.Error("not served from the cache")
	}
}

func TestHost(t *testing.T) {
	d := newFake(100 << 20)
	h, err := NewHost(d, config.Allocator{})
	must(t, err)
	p, err := h.Malloc(5000)
	must(t, err)
	if s := h.Stats(); s.ActiveBytes.Current != 8192 || s.AllocatedBytes.Current != 8192 || !h.Owns(p+8191) ||
		h.Owns(p+8192) {
		t.Errorf("%+v", s)
	}
	if !h.RecordStream(p, 1) || !h.RecordStream(p+8191, 2) || h.RecordStream(p+8192, 1) || h.RecordStream(p-1, 1) {
		t.Error("an allocation is where it isn't, or isn't where it is")
	}
	must(t, h.Free(p))
	q, err := h.Malloc(8000)
	must(t, err)
	d.run(1)
	r, err := h.Malloc(8000)
	must(t, err)
	if q == p || r == p {
		t.Error("reused while a stream uses it")
	}
	d.run(2)
	if r, err = h.Malloc(4097); r != p || err != nil {
		t.Error("not reused", err)
	}
	must(t, h.Free(r))
	for name, test := range map[string]struct{ err, kind error }{
		"double":   {h.Free(r), ErrDoubleFree},
		"interior": {h.Free(q + 1), ErrInteriorPointer},
		"foreign":  {h.Free(7), ErrForeignPointer},
		"negative": {second(h.Malloc(-1)), ErrInvalidArgument},
	} {
		if !errors.Is(test.err, test.kind) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	// Memory isn't kept for a stream whose use can't be recorded.
	p, err = h.Malloc(100)
	must(t, err)
	if !h.RecordStream(p, 3) || !h.RecordStream(p, gone) {
		t.Error("of no allocation")
	}
	must(t, h.Free(p))
	if _, kept := d.live[p]; kept || len(d.events) != 0 {
		t.Errorf("the cache keeps the memory, or %d events", len(d.events))
	}
	big, err := h.Malloc(60 << 20) // 64 MiB; the free ones must go first
	must(t, err)
	if _, err := h.Malloc(60 << 20); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	must(t, h.Free(big))
	must(t, h.Free(0))
	must(t, h.EmptyCache())
	if d.used != h.Stats().AllocatedBytes.Current || len(d.events) != 0 {
		t.Errorf("%d bytes, %d events", d.used, len(d.events))
	}
}

// TestHostStats goes by what PyTorch says of its figures: a block is active until the work that uses it is done.
func TestHostStats(t *testing.T) {
	d := newFake(100 << 20)
	h, err := NewHost(d, config.Allocator{})
	must(t, err)
	want := func(figures map[string]int64) {
		t.Helper()
		got := h.Stats().Map()
		for name, n := range figures {
			if v, ok := got[name]; !ok || v != n {
				t.Errorf("%s is %d, %v, want %d", name, v, ok, n)
			}
		}
	}
	p, err := h.Malloc(5000)
	must(t, err)
	q, err := h.Malloc(100)
	must(t, err)
	h.RecordStream(p, 1)
	must(t, h.Free(p))
	must(t, h.Free(q))
	want(map[string]int64{"active_requests.current": 1, "active_bytes.current": 8192, "active_bytes.peak": 8320,
		"allocations.current": 2, "allocated_bytes.allocated": 8320, "num_host_alloc": 2, "host_alloc_time.count": 2,
		"num_host_free": 0})
	d.run(1)
	h.ResetPeakStats()
	must(t, h.EmptyCache())
	want(map[string]int64{"active_requests.current": 0, "active_bytes.freed": 8320, "active_bytes.peak": 8192,
		"allocated_bytes.current": 0, "num_host_free": 2, "host_free_time.count": 2})
	h.ResetAccumulatedStats()
	want(map[string]int64{"active_bytes.freed": 0, "num_host_alloc": 0, "host_alloc_time.count": 0,
		"host_alloc_time.avg": 0})
}

// When nothing else is left, a stream borrows a free part of another's segment, after that stream's work. The part
// comes back behind the work of the stream that has borrowed it.
func TestBorrow(t *testing.T) {
	d := newFake(20 << 20)
	c := open(t, d)
	kept, freed := malloc(t, c, 2<<20, 1), malloc(t, c, 17<<20, 1)
	must(t, c.Free(freed))
	event, err := d.Record(1) // its work
	must(t, err)
	lent := malloc(t, c, 10<<20, 2)
	if done, err := d.Query(event); lent != freed || !done || err != nil {
		t.Errorf("%#x, and stream 1's %#x has done its work: %v, %v", lent, freed, done, err)
	}
	verify(t, c)
	must(t, c.Free(lent))
	event = d.lastEv
	if done, err := d.Query(event); d.events[event].stream != 2 || done || err != nil {
		t.Errorf("the memory comes back after event %v: %v, %v", d.events[event], done, err)
	}
	if p := malloc(t, c, 17<<20, 1); p != freed || d.done[2] != d.issued[2] {
		t.Errorf("%#x, before stream 2 was done with %#x", p, freed)
	}
	must(t, c.Free(kept))
	must(t, c.Free(freed))
	must(t, c.EmptyCache())
	if d.used != 0 {
		t.Errorf("%d bytes are left", d.used)
	}
}

// A small allocation is a part of a large segment when there is no room for a segment of small ones.
func TestBorrowLarge(t *testing.T) {
	d := newFake(20 << 20)
	c := open(t, d)
	kept, freed := malloc(t, c, 2<<20, 1), malloc(t, c, 17<<20, 1)
	must(t, c.Free(freed))
	if small := malloc(t, c, 1000, 1); small != freed || len(d.events) > 0 {
		t.Errorf("%#x, with %d events", small, len(d.events))
	}
	verify(t, c)
	must(t, c.Free(kept))
	must(t, c.Free(freed))
	must(t, c.EmptyCache())
	if d.used != 0 {
		t.Errorf("%d bytes are left", d.used)
	}
}
