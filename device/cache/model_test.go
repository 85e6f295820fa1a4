package cache

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// model does what the cache should do, in the simplest way: lists that are searched from end to end.
type model struct {
	capacity, reserved int64
	next               uintptr
	segments           []*modelSegment
}

type modelSegment struct {
	stream Stream
	small  bool
	blocks []modelBlock
}

type modelBlock struct {
	addr  uintptr
	size  int64
	state modelState
	waits map[Stream]uint64 // for how many events of other streams
}

type modelState int

const (
	modelFree modelState = iota
	modelUsed
	modelWaiting
)

// malloc allocates; the last attempt also takes a segment that is no larger than the block needs.
func (m *model) malloc(n int64, s Stream, last bool) (uintptr, bool) {
	size := max(512, (n+511)/512*512)
	small := size <= 1<<20
	seg, i := m.bestFit(size, small, s)
	if seg == nil {
		bytes := int64(2 << 20)
		switch {
		case size >= 10<<20:
			bytes = (size + 2<<20 - 1) / (2 << 20) * (2 << 20)
		case !small:
			bytes = 20 << 20
		}
		if own := (size + 2<<20 - 1) / (2 << 20) * (2 << 20); last && m.reserved+bytes > m.capacity {
			bytes = min(bytes, own)
		}
		if m.reserved+bytes > m.capacity {
			return 0, false
		}
		m.reserved += bytes
		seg, i = &modelSegment{stream: s, small: small, blocks: []modelBlock{{addr: m.next, size: bytes}}}, 0
		m.next += uintptr(bytes) + 1<<21
		m.segments = append(m.segments, seg)
	}
	return seg.take(i, size), true
}

// take gives the front of a free block out.
func (seg *modelSegment) take(i int, size int64) uintptr {
	b := &seg.blocks[i]
	if rest := b.size - size; seg.small && rest >= 512 || rest > 1<<20 {
		tail := modelBlock{addr: b.addr + uintptr(size), size: rest}
		b.size = size
		seg.blocks = append(seg.blocks[:i+1], append([]modelBlock{tail}, seg.blocks[i+1:]...)...)
		b = &seg.blocks[i]
	}
	b.state = modelUsed
	return b.addr
}

// borrow allocates of what is free elsewhere: of another stream, which it returns, and a small one of a large segment.
func (m *model) borrow(n int64, s Stream) (addr uintptr, of Stream, ok bool) {
	size := max(512, (n+511)/512*512)
	var best *modelSegment
	at := 0
	better := func(seg *modelSegment, i int) bool {
		a, b := seg.blocks[i], best.blocks[at]
		switch {
		case (seg.stream == s) != (best.stream == s):
			return seg.stream == s
		case a.size != b.size:
			return a.size < b.size
		}
		return a.addr < b.addr
	}
	for _, seg := range m.segments {
		for i, b := range seg.blocks {
			if b.state == modelFree && b.size >= size && (!seg.small || size <= 1<<20) && (best == nil || better(seg, i)) {
				best, at = seg, i
			}
		}
	}
	if best == nil {
		return 0, 0, false
	}
	return best.take(at, size), best.stream, true
}

func (m *model) bestFit(size int64, small bool, s Stream) (best *modelSegment, at int) {
	for _, seg := range m.segments {
		for i, b := range seg.blocks {
			if seg.stream == s && seg.small == small && b.state == modelFree && b.size >= size &&
				(best == nil || b.size < best.blocks[at].size || b.size == best.blocks[at].size && b.addr < best.blocks[at].addr) {
				best, at = seg, i
			}
		}
	}
	return best, at
}

func (m *model) find(addr uintptr) (*modelSegment, *modelBlock) {
	for _, seg := range m.segments {
		for i := range seg.blocks {
			if seg.blocks[i].addr == addr {
				return seg, &seg.blocks[i]
			}
		}
	}
	return nil, nil
}

// mergeAll merges free neighbors of all segments.
func (m *model) mergeAll() {
	for _, seg := range m.segments {
		merged := seg.blocks[:1]
		for _, b := range seg.blocks[1:] {
			if last := &merged[len(merged)-1]; last.state == modelFree && b.state == modelFree {
				last.size += b.size
			} else {
				merged = append(merged, b)
			}
		}
		seg.blocks = merged
	}
}

// happened frees what waited for events that have happened.
func (m *model) happened(done map[Stream]uint64) {
	for _, seg := range m.segments {
		for i := range seg.blocks {
			b := &seg.blocks[i]
			ready := b.state == modelWaiting
			for s, n := range b.waits {
				ready = ready && done[s] >= n
			}
			if ready {
				b.state, b.waits = modelFree, nil
			}
		}
	}
	m.mergeAll()
}

// release gives back whole segments.
func (m *model) release() {
	var kept []*modelSegment
	for _, seg := range m.segments {
		if len(seg.blocks) == 1 && seg.blocks[0].state == modelFree {
			m.reserved -= seg.blocks[0].size
		} else {
			kept = append(kept, seg)
		}
	}
	m.segments = kept
}

// used sums up the allocated blocks.
func (m *model) used() (n int64) {
	for _, seg := range m.segments {
		for _, b := range seg.blocks {
			if b.state == modelUsed {
				n += b.size
			}
		}
	}
	return n
}

// randomSize has sizes of every rule.
func randomSize(r *rand.Rand) int64 {
	switch r.IntN(6) {
	case 0:
		return 1 + r.Int64N(2000)
	case 1:
		return 1 + r.Int64N(1<<20)
	case 2:
		return 1<<20 + r.Int64N(9<<20)
	case 3:
		return 10<<20 + r.Int64N(20<<20)
	case 4:
		return 512 << r.IntN(16)
	}
	return 1 + r.Int64N(100_000)
}

func operations(ordinary int) int {
	if os.Getenv("CHORUS_TEST_LONG") == "1" {
		return 1_000_000
	}
	return ordinary
}

// TestModel does random operations on a cache and on the model, which have to give the same addresses and the same
// figures.
func TestModel(t *testing.T) {
	const capacity = 600 << 20
	d := newFake(capacity)
	c := open(t, d)
	m := &model{capacity: capacity, next: d.next}
	r := rand.New(rand.NewPCG(1, 2))
	uses := map[uintptr]map[Stream]bool{}
	var live []uintptr
	ooms, borrowed := 0, 0
	for op := range operations(100_000) {
		switch k := r.IntN(100); {
		case k < 50:
			n, s := randomSize(r), Stream(r.IntN(3))
			m.happened(d.done)
			got, err := c.Malloc(n, s)
			addr, ok := m.malloc(n, s, false)
			if !ok { // the cache has waited for all events and given back all it could
				m.happened(d.issued)
				m.release()
				addr, ok = m.malloc(n, s, true)
			}
			if !ok { // it has waited for another stream, if it borrows that one's memory
				var of Stream
				if addr, of, ok = m.borrow(n, s); ok {
					borrowed++
				}
				if ok && of != s {
					uses[addr] = map[Stream]bool{s: true}
				}
			}
			if !ok {
				ooms++
				if !errors.Is(err, ErrOutOfMemory) {
					t.Fatalf("operation %d: Malloc(%d, %d) gives %#x, %v, the model has no memory", op, n, s, got, err)
				}
				for len(live) > 100 { // or little would happen from now on
					live = freeBoth(t, c, m, d, uses, live, r)
				}
				break
			}
			if err != nil || got != addr {
				t.Fatalf("operation %d: Malloc(%d, %d) = %#x, %v, want %#x", op, n, s, got, err, addr)
			}
			live = append(live, got)
		case k < 94 && len(live) > 0:
			live = freeBoth(t, c, m, d, uses, live, r)
		case k < 98 && len(live) > 0:
			p, s := live[r.IntN(len(live))], Stream(r.IntN(4))
			must(t, c.RecordStream(p, s))
			if seg, _ := m.find(p); seg.stream != s {
				if uses[p] == nil {
					uses[p] = map[Stream]bool{}
				}
				uses[p][s] = true
			}
		case k == 98:
			d.run(Stream(r.IntN(4)))
		case k == 99 && r.IntN(20) == 0:
			must(t, c.EmptyCache())
			m.happened(d.issued)
			m.release()
		}
		if op%500 == 0 {
			verify(t, c)
			s := c.Stats()
			want := m.used()
			if s.AllocatedBytes[All].Current != want || s.ReservedBytes[All].Current != m.reserved {
				t.Fatalf("operation %d: %d allocated and %d reserved, want %d and %d", op, s.AllocatedBytes[All].Current,
					s.ReservedBytes[All].Current, want, m.reserved)
			}
		}
	}
	if ooms == 0 || borrowed == 0 || c.Stats().NumAllocRetries == 0 {
		t.Errorf("memory ran out %d times, and was borrowed %d times", ooms, borrowed)
	}
	for len(live) > 0 {
		live = freeBoth(t, c, m, d, uses, live, r)
	}
	must(t, c.EmptyCache())
	verify(t, c)
	if d.used != 0 || len(d.events) != 0 || len(c.segments) != 0 {
		t.Errorf("%d bytes and %d events are left", d.used, len(d.events))
	}
	t.Logf("%d times out of memory", ooms)
}

// freeBoth frees one allocation in the cache and in the model.
func freeBoth(t *testing.T, c *Cache, m *model, d *fakeDriver, uses map[uintptr]map[Stream]bool, live []uintptr,
	r *rand.Rand) []uintptr {
	t.Helper()
	i := r.IntN(len(live))
	p := live[i]
	live[i] = live[len(live)-1]
	must(t, c.Free(p))
	_, b := m.find(p)
	b.state = modelFree
	if len(uses[p]) > 0 {
		b.state, b.waits = modelWaiting, map[Stream]uint64{}
		for s := range uses[p] {
			b.waits[s] = d.issued[s]
		}
	}
	delete(uses, p)
	m.mergeAll()
	return live[:len(live)-1]
}

// TestRandom does random operations under other settings, with private pools and captures, and checks that live
// allocations are what the cache says and that all memory comes back.
func TestRandom(t *testing.T) {
	for _, text := range []string{"expandable_segments:True", "max_split_size_mb:24",
		"garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
		"roundup_power2_divisions:4", "expandable_segments:True,per_process_memory_fraction:0.7", "no caching"} {
		t.Run(text, func(t *testing.T) {
			d := newFake(600 << 20)
			setting := func(o *Options) { o.Allocator, o.NoCaching = config.DefaultAllocator(), true }
			if text != "no caching" {
				setting = conf(t, text)
			}
			randomOperations(t, open(t, expandableFake{d}, setting), d, operations(8_000))
		})
	}
}

func randomOperations(t *testing.T, c *Cache, d *fakeDriver, n int) {
	r := rand.New(rand.NewPCG(3, 4))
	live := map[uintptr]int64{}
	var order []uintptr
	var pools []PoolID // that began
	var retained []PoolID
	capture := false
	for op := range n {
		switch k := r.IntN(1000); {
		case k < 500:
			size := randomSize(r)
			p, err := c.Malloc(size, Stream(r.IntN(3)))
			if errors.Is(err, ErrOutOfMemory) {
				for len(order) > 50 {
					must(t, c.Free(order[len(order)-1]))
					delete(live, order[len(order)-1])
					order = order[:len(order)-1]
				}
				break
			}
			must(t, err)
			got, err := c.Size(p)
			must(t, err)
			if live[p] != 0 || got < size || p%minBlock != 0 {
				t.Fatalf("operation %d: Malloc(%d) gives %#x with %d bytes", op, size, p, got)
			}
			live[p] = got
			order = append(order, p)
		case k < 940 && len(order) > 0:
			i := r.IntN(len(order))
			must(t, c.Free(order[i]))
			delete(live, order[i])
			order[i] = order[len(order)-1]
			order = order[:len(order)-1]
		case k < 970 && len(order) > 0:
			must(t, c.RecordStream(order[r.IntN(len(order))], Stream(r.IntN(4))))
		case k < 980:
			d.run(Stream(r.IntN(4)))
		case k < 985 && !capture:
			must(t, c.EmptyCache())
		case k < 990 && len(pools) == 0:
			id := NewPoolID()
			capture = r.IntN(2) == 0
			must(t, c.BeginPool(id, func(s Stream) bool { return s == 1 }, capture))
			pools = append(pools, id)
		case k < 995 && len(pools) > 0:
			must(t, c.EndPool(pools[0]))
			retained, pools, capture = append(retained, pools[0]), nil, false
		case len(retained) > 0:
			must(t, c.ReleasePool(retained[0]))
			retained = retained[1:]
		}
		if op%500 == 0 {
			checkLive(t, c, live)
		}
	}
	for _, id := range pools {
		must(t, c.EndPool(id))
	}
	for _, id := range append(retained, pools...) {
		must(t, c.ReleasePool(id))
	}
	for _, p := range order {
		must(t, c.Free(p))
	}
	must(t, c.EmptyCache())
	verify(t, c)
	if d.used != 0 || len(d.live) != 0 || len(d.reserved) != 0 || len(d.events) != 0 || len(c.private) != 0 {
		t.Errorf("left: %d bytes, %d segments, %d reservations, %d events, %d pools", d.used, len(d.live), len(d.reserved),
			len(d.events), len(c.private))
	}
}

// checkLive compares the allocations with those of a snapshot.
func checkLive(t *testing.T, c *Cache, live map[uintptr]int64) {
	t.Helper()
	verify(t, c)
	n := 0
	for _, s := range c.Snapshot().Segments {
		for _, b := range s.Blocks {
			if b.State == StateAllocated {
				if n++; live[uintptr(b.Address)] != b.Size {
					t.Fatalf("block %#x has %d bytes, its owner knows of %d", b.Address, b.Size, live[uintptr(b.Address)])
				}
			}
		}
	}
	if n != len(live) {
		t.Fatalf("%d allocations in the snapshot, %d live", n, len(live))
	}
}
