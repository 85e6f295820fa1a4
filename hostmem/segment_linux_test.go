//go:build !chorus_portable

package hostmem

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestSegment(t *testing.T) {
	checkLeaks(t)
	s, err := NewSegment(10000)
	if err != nil {
		t.Fatal(err)
	}
	if s.Size() != roundUp(10000, pageSize) || len(s.Bytes()) != s.Size() {
		t.Errorf("size %d", s.Size())
	}
	flags, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: want close-on-exec", flags, err)
	}
	for _, n := range []int64{0, int64(s.Size()) * 2} {
		if err := unix.Ftruncate(s.FD(), n); err == nil {
			t.Errorf("the file could be resized to %d", n)
		}
	}
	var st unix.Stat_t
	if unix.Madvise(s.Bytes(), 1<<20) == nil {
		t.Log("left out: this is an emulator that takes any advice and follows none, so pages come at first touch")
	} else if err := unix.Fstat(s.FD(), &st); err != nil || st.Blocks*512 < int64(s.Size()) {
		t.Errorf("%d bytes present, %v: want all %d", st.Blocks*512, err, s.Size())
	}
	other, err := NewSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	if other.ID() == s.ID() {
		t.Error("two segments have one ID")
	}
	for _, s := range []*Segment{s, other, s} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := NewSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.ID() <= other.ID() {
		t.Error("an ID was used again")
	}
	for _, n := range []int{0, -1, maxSize + 1} {
		if _, err := NewSegment(n); err == nil {
			t.Errorf("a segment of %d bytes was made", n)
		}
	}
}

func TestMapShares(t *testing.T) {
	checkLeaks(t)
	s, err := NewSegment(3 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Map(s.FD(), int64(s.Size()-5), s.Color())
	if err != nil {
		t.Fatal(err)
	}
	if uintptr(m.Base())%colorSpan != uintptr(s.Base())%colorSpan {
		t.Errorf("mapped at %p, the owner's is at %p: another colour", m.Base(), s.Base())
	}
	if m.Size() != s.Size()-5 || len(m.Bytes()) != m.Size() {
		t.Errorf("size %d", m.Size())
	}
	s.Bytes()[pageSize] = 7
	if m.Bytes()[pageSize] != 7 {
		t.Error("a store of the owner is not seen by the peer")
	}
	m.Bytes()[1] = 9
	if s.Bytes()[1] != 9 {
		t.Error("a store of the peer is not seen by the owner")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if m.Bytes()[1] != 9 {
		t.Error("the mapping did not outlive the owner's")
	}
	for range 2 {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
}

func TestMapRefuses(t *testing.T) {
	checkLeaks(t)
	s, err := NewSegment(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	loose, err := unix.MemfdCreate("chorus", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(loose)
	if err := unix.Ftruncate(loose, int64(pageSize)); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name  string
		fd    int
		size  int64
		color int
		want  string
	}{
		{"unsealed", loose, 1, 0, "not sealed"},
		{"too short", s.FD(), int64(pageSize) + 1, 0, "announced"},
		{"empty", s.FD(), 0, 0, "not in"},
		{"negative", s.FD(), -1, 0, "not in"},
		{"huge", s.FD(), 1 << 62, 0, "not in"},
		{"colour", s.FD(), 1, colorSpan / pageSize, "colour"},
		{"negative colour", s.FD(), 1, -1, "colour"},
		{"closed", -1, 1, 0, "descriptor -1"},
		{"ordinary file", int(file.Fd()), 1, 0, ""},
	} {
		m, err := Map(c.fd, c.size, c.color)
		if err == nil {
			m.Unmap()
			t.Errorf("%s: mapped", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q does not say %q", c.name, err, c.want)
		}
	}
}

// A sealed but sparse file of a peer must not be filled at this process's expense.
func TestMapLeavesHoles(t *testing.T) {
	fd, err := unix.MemfdCreate("chorus", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	m, err := Map(fd, 1<<30, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks != 0 {
		t.Errorf("%d blocks present, %v", st.Blocks, err)
	}
}

func TestFind(t *testing.T) {
	checkLeaks(t)
	var segs []*Segment
	for range 5 {
		s, err := NewSegment(2 * pageSize)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		segs = append(segs, s)
	}
	for _, s := range segs {
		for _, c := range []struct {
			off, n int
			ok     bool
		}{{0, 0, true}, {0, s.Size(), true}, {17, s.Size() - 17, true}, {s.Size() - 1, 1, true},
			{0, s.Size() + 1, false}, {17, s.Size() - 16, false}, {-1, 1, false}, {s.Size(), 0, false}, {0, -1, false}} {
			got, off, ok := Find(unsafe.Pointer(uintptr(s.Base())+uintptr(c.off)), c.n)
			if ok != c.ok || ok && (got != s || off != c.off) {
				t.Errorf("Find(+%d, %d) = %v, %d, %v", c.off, c.n, got, off, ok)
			}
		}
	}
	heap := make([]byte, 100)
	if _, _, ok := Find(unsafe.Pointer(&heap[0]), 100); ok {
		t.Error("the Go heap is taken for a segment")
	}
	p := segs[0].Base()
	if n := testing.AllocsPerRun(100, func() { Find(p, 64) }); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

func BenchmarkFind(b *testing.B) {
	blk, err := Alloc(4 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer blk.Free()
	b.ReportAllocs()
	for b.Loop() {
		Find(blk.Pointer(), 1<<20)
	}
}

// mappedPages tells which pages of a mapping this process has in its page tables.
func mappedPages(t *testing.T, m *Mapping) (pages []int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skipf("left out: the system doesn't tell which pages are mapped: %v", err)
	}
	defer f.Close()
	words := make([]byte, 8*roundUp(m.Size(), pageSize)/pageSize)
	if _, err := f.ReadAt(words, 8*int64(uintptr(m.Base())/uintptr(pageSize))); err != nil {
		t.Fatal(err)
	}
	for i := range len(words) / 8 {
		if words[8*i+7]&0x80 != 0 {
			pages = append(pages, i)
		}
	}
	return pages
}

// TestMapUntouched maps a segment of which a part is used: only that gets entries in the page tables.
func TestMapUntouched(t *testing.T) {
	checkLeaks(t)
	s, err := NewSegment(64 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := MapUntouched(s.FD(), int64(s.Size()), s.Color())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if pages := mappedPages(t, m); len(pages) > 0 {
		t.Errorf("pages %v are mapped", pages)
	}
	m.Prefault(3*pageSize, 2*pageSize)
	switch pages := mappedPages(t, m); {
	case len(pages) == 0 && unix.Madvise(m.Bytes()[:pageSize], unix.MADV_POPULATE_WRITE) != nil:
		t.Skip("left out: the kernel can't map pages ahead")
	case !slices.Equal(pages, []int{3, 4}):
		t.Errorf("pages %v are mapped, want 3 and 4", pages)
	}
	s.Bytes()[9*pageSize] = 7
	if m.Bytes()[9*pageSize] != 7 {
		t.Error("a store of the owner is not seen")
	}
}
