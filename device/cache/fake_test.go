package cache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// fakeDriver hands out addresses with nothing behind them, counted up so that none comes twice. Streams run only when a
// test makes them.
type fakeDriver struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	next     uintptr
	live     map[uintptr]int64 // of Alloc
	reserved map[uintptr]int64
	mapped   map[uintptr]int64 // by page
	streams  int               // 0 to streams-1 exist
	issued   map[Stream]uint64 // events recorded on a stream, and those that have happened
	done     map[Stream]uint64
	events   map[Event]fakeEvent
	lastEv   Event
	fail     error // what every call returns
	calls    int   // of Alloc
}

type fakeEvent struct {
	stream Stream
	n      uint64
}

const fakePage = 2 << 20

func newFake(capacity int64) *fakeDriver {
	return &fakeDriver{capacity: capacity, next: 1 << 32, streams: 4, live: map[uintptr]int64{},
		reserved: map[uintptr]int64{}, mapped: map[uintptr]int64{},
		issued: map[Stream]uint64{}, done: map[Stream]uint64{}, events: map[Event]fakeEvent{}}
}

func (d *fakeDriver) take(n int64) error {
	if d.fail != nil {
		return d.fail
	}
	if d.used+n > d.capacity {
		return fmt.Errorf("fake: %w", ErrOutOfMemory)
	}
	d.used += n
	return nil
}

func (d *fakeDriver) Alloc(n int64) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if err := d.take(n); err != nil {
		return 0, err
	}
	addr := d.next
	d.next += uintptr(n) + 1<<21
	d.live[addr] = n
	return addr, nil
}

func (d *fakeDriver) Free(addr uintptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.live[addr]
	if !ok {
		return errors.New("fake: no such allocation")
	}
	delete(d.live, addr)
	d.used -= n
	return d.fail
}

func (d *fakeDriver) HasStream(s Stream) bool { return s < Stream(d.streams) }

// gone is a stream that can't be recorded.
const gone Stream = 1 << 20

func (d *fakeDriver) Record(s Stream) (Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == gone {
		return 0, &StreamError{s}
	}
	d.issued[s]++
	d.lastEv++
	d.events[d.lastEv] = fakeEvent{s, d.issued[s]}
	return d.lastEv, d.fail
}

func (d *fakeDriver) Query(e Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.events[e]
	if !ok {
		return false, errors.New("fake: no such event")
	}
	return d.done[v.stream] >= v.n, d.fail
}

func (d *fakeDriver) Wait(e Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.events[e]
	if !ok {
		return errors.New("fake: no such event")
	}
	d.done[v.stream] = max(d.done[v.stream], v.n)
	return d.fail
}

func (d *fakeDriver) Release(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, e)
}

func (d *fakeDriver) Memory() (int64, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capacity - d.used, d.capacity, nil
}

// run lets a stream do all its work.
func (d *fakeDriver) run(s Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[s] = d.issued[s]
}

// expandableFake is a fakeDriver that can reserve addresses.
type expandableFake struct{ *fakeDriver }

func (d expandableFake) Granularity() int64 { return fakePage }

func (d expandableFake) Reserve(n int64) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	addr := d.next
	d.next += uintptr(n) + 1<<21
	d.reserved[addr] = n
	return addr, d.fail
}

func (d expandableFake) Unreserve(addr uintptr, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved[addr] != n || n%fakePage != 0 {
		return errors.New("fake: not reserved like this")
	}
	for page := range d.mapped {
		if page-addr < uintptr(n) {
			return errors.New("fake: still mapped")
		}
	}
	delete(d.reserved, addr)
	return nil
}

func (d expandableFake) inReserved(addr uintptr, n int64) bool {
	for base, size := range d.reserved {
		if addr-base < uintptr(size) && int64(addr-base)+n <= size && int64(addr-base)%fakePage == 0 && n%fakePage == 0 {
			return true
		}
	}
	return false
}

func (d expandableFake) Map(addr uintptr, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.inReserved(addr, n) {
		return errors.New("fake: not reserved")
	}
	if err := d.take(n); err != nil {
		return err
	}
	for a := addr; a < addr+uintptr(n); a += fakePage {
		if d.mapped[a] != 0 {
			return errors.New("fake: mapped twice")
		}
		d.mapped[a] = fakePage
	}
	return nil
}

func (d expandableFake) Unmap(addr uintptr, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := addr; a < addr+uintptr(n); a += fakePage {
		if d.mapped[a] == 0 {
			return errors.New("fake: not mapped")
		}
		delete(d.mapped, a)
	}
	d.used -= n
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, d Driver, opts ...func(*Options)) *Cache {
	t.Helper()
	o := Options{Allocator: config.DefaultAllocator()}
	for _, f := range opts {
		f(&o)
	}
	c, err := New(d, o)
	must(t, err)
	return c
}

func conf(t testing.TB, text string) func(*Options) {
	a, err := config.ParseAllocator(text)
	must(t, err)
	return func(o *Options) { o.Allocator = a }
}

func malloc(t testing.TB, c *Cache, n int64, s Stream) uintptr {
	t.Helper()
	p, err := c.Malloc(n, s)
	must(t, err)
	return p
}

// verify checks the invariants of a cache, and recomputes the statistics from its blocks.
func verify(t testing.TB, c *Cache) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var s Stats
	free, unmapped := map[*pool][]*block{}, map[*pool][]*block{}
	allocated := 0
	var reserved int64
	var end uintptr
	for _, seg := range c.segments {
		if seg.addr < end || seg.first == nil || seg.first.prev != nil {
			t.Fatalf("segment %#x overlaps or has no first block", seg.addr)
		}
		end = seg.addr + uintptr(seg.size)
		at := seg.addr
		if !seg.expandable {
			s.Segment.change(seg.first.pool, 1)
		}
		for b := seg.first; b != nil; b = b.next {
			if b.addr != at || b.size <= 0 || b.size%minBlock != 0 || b.seg != seg || b.next != nil && b.next.prev != b {
				t.Fatalf("block %#x of %d bytes in segment %#x, where one at %#x is due", b.addr, b.size, seg.addr, at)
			}
			at += uintptr(b.size)
			if b.next != nil && b.idle() && b.next.idle() && b.mapped == b.next.mapped {
				t.Fatalf("free neighbors at %#x and %#x", b.addr, b.next.addr)
			}
			if b.mapped {
				reserved += b.size
				s.ReservedBytes.change(b.pool, b.size)
			}
			switch {
			case b.allocated:
				allocated++
				s.Allocation.change(b.pool, 1)
				s.AllocatedBytes.change(b.pool, b.size)
				if c.allocated.find(b.addr) != b {
					t.Fatalf("block %#x is allocated and not in the table", b.addr)
				}
			case b.idle() && b.mapped:
				free[b.pool] = append(free[b.pool], b)
				if b.isSplit() && !seg.expandable {
					s.InactiveSplit.change(b.pool, 1)
					s.InactiveSplitBytes.change(b.pool, b.size)
				}
			case b.idle():
				unmapped[b.pool] = append(unmapped[b.pool], b)
			}
			if !b.idle() {
				s.Active.change(b.pool, 1)
				s.ActiveBytes.change(b.pool, b.size)
				s.RequestedBytes.change(b.pool, b.requested)
			}
		}
		if at != end {
			t.Fatalf("segment %#x has blocks up to %#x, not %#x", seg.addr, at, end)
		}
	}
	if allocated != c.allocated.used || reserved != c.reserved {
		t.Fatalf("%d blocks and %d bytes, the table has %d, the count is %d", allocated, reserved, c.allocated.used,
			c.reserved)
	}
	pools := []*pool{&c.small, &c.large}
	for _, pp := range c.private {
		pools = append(pools, &pp.small, &pp.large)
	}
	for _, p := range pools {
		for _, set := range []struct {
			t    *tree
			want []*block
		}{{&p.free, free[p]}, {&p.unmapped, unmapped[p]}} {
			got := set.t.all()
			if !slices.IsSortedFunc(got, func(a, b *block) int {
				if set.t.less(a, b) {
					return -1
				}
				return 1
			}) {
				t.Fatal("a set is out of order")
			}
			if len(got) != len(set.want) {
				t.Fatalf("%d blocks in a set, %d in the segments", len(got), len(set.want))
			}
			in := map[*block]bool{}
			for _, b := range got {
				in[b] = true
			}
			for _, b := range set.want {
				if !in[b] {
					t.Fatalf("block %#x is free and not in the set", b.addr)
				}
			}
		}
	}
	for name, pair := range map[string][2]*PoolStat{
		"allocation": {&s.Allocation, &c.stats.Allocation}, "allocated_bytes": {&s.AllocatedBytes, &c.stats.AllocatedBytes},
		"segment": {&s.Segment, &c.stats.Segment}, "reserved_bytes": {&s.ReservedBytes, &c.stats.ReservedBytes},
		"active": {&s.Active, &c.stats.Active}, "active_bytes": {&s.ActiveBytes, &c.stats.ActiveBytes},
		"requested_bytes": {&s.RequestedBytes, &c.stats.RequestedBytes},
		"inactive_split":  {&s.InactiveSplit, &c.stats.InactiveSplit}, "inactive_split_bytes": {&s.InactiveSplitBytes,
			&c.stats.InactiveSplitBytes},
	} {
		for i := range pair[0] {
			if want, got := pair[0][i], pair[1][i]; want.Current != got.Current || got.Allocated-got.Freed != got.Current ||
				got.Peak < got.Current {
				t.Fatalf("%s[%d] is %+v, the blocks have %d", name, i, got, want.Current)
			}
		}
	}
}
