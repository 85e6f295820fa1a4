package cache

import (
	"errors"
	"testing"
)

// source is memory from elsewhere.
type source struct {
	next uintptr
	live map[uintptr]int64
	fail error
}

func (s *source) Alloc(size int64) (uintptr, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	s.next += uintptr(size) + 1<<21
	s.live[s.next] = size
	return s.next, nil
}

func (s *source) Free(addr uintptr) error {
	if _, ok := s.live[addr]; !ok {
		return errors.New("not from here")
	}
	delete(s.live, addr)
	return nil
}

// A pool over a source gets its segments from there, gives them back there alone, and follows the same rules; other
// allocations don't touch it.
func TestSource(t *testing.T) {
	d := newFake(1 << 30)
	c, err := New(d, Options{})
	must(t, err)
	from := &source{next: 1 << 40, live: map[uintptr]int64{}}
	id := c.NewPool(from)
	a, err := c.MallocIn(id, 1000, 0)
	must(t, err)
	b, err := c.MallocIn(id, 30<<20, 0)
	must(t, err)
	other := malloc(t, c, 1000, 0)
	if len(from.live) != 2 || a < 1<<40 || b < 1<<40 || other >= 1<<40 || len(d.live) != 1 {
		t.Errorf("%#x, %#x, %#x: %v", a, b, other, from.live)
	}
	must(t, c.RecordStream(b, 1))
	must(t, c.Free(a))
	if again, err := c.MallocIn(id, 1000, 0); err != nil || again != a {
		t.Errorf("%#x, %v after %#x", again, err, a)
	}
	must(t, c.BeginPool(id, nil, false))
	within := malloc(t, c, 1000, 0)
	must(t, c.EndPool(id))
	must(t, c.ReleasePool(id))
	if within < 1<<40 {
		t.Errorf("%#x within the pool", within)
	}
	verify(t, c)
	for _, p := range []uintptr{a, b, within, other} {
		must(t, c.Free(p))
	}
	must(t, c.EmptyCache())
	if len(from.live) != 0 || len(d.live) != 0 {
		t.Errorf("left: %v, %v", from.live, d.live)
	}
	from.fail = ErrOutOfMemory
	if _, err := c.MallocIn(id, 1, 0); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	if _, err := c.MallocIn(NewPoolID(), 1, 0); !errors.Is(err, ErrUnknownPool) {
		t.Error(err)
	}
	verify(t, c)
}
