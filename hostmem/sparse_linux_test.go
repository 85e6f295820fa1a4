//go:build !chorus_portable

package hostmem

import (
	"testing"

	"golang.org/x/sys/unix"
)

// present returns the bytes of memory that a segment takes.
func present(t *testing.T, s *Segment) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// Memory comes and goes piece by piece, and a peer that has mapped the whole sees it.
func TestSparse(t *testing.T) {
	checkLeaks(t)
	const size = 1 << 40
	s, err := NewSparse(size)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := present(t, s); n != 0 {
		t.Errorf("a new segment takes %d bytes", n)
	}
	m, err := Map(s.FD(), size, s.Color())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	at := size - 16*pageSize
	if err := s.Commit(at, 4*pageSize); err != nil {
		t.Fatal(err)
	}
	if n := present(t, s); n != int64(4*pageSize) {
		t.Errorf("4 pages take %d bytes", n)
	}
	s.Bytes()[at+5] = 7
	if m.Bytes()[at+5] != 7 {
		t.Error("the mapping shows other memory")
	}
	if err := s.Decommit(at, 4*pageSize); err != nil {
		t.Fatal(err)
	}
	if n := present(t, s); n != 0 {
		t.Errorf("%d bytes remain", n)
	}
	if err := s.Commit(at, pageSize); err != nil {
		t.Fatal(err)
	}
	if s.Bytes()[at+5] != 0 {
		t.Error("memory came back with its old contents")
	}
	for _, c := range [][2]int{{1, pageSize}, {0, 1}, {-pageSize, pageSize}, {0, 0}, {size, pageSize},
		{0, size + pageSize}} {
		if s.Commit(c[0], c[1]) == nil || s.Decommit(c[0], c[1]) == nil {
			t.Errorf("%d bytes at %d were accepted", c[1], c[0])
		}
	}
}
