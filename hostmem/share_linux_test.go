//go:build !chorus_portable

package hostmem

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A shared descriptor outlives its segment, whose end is announced.
func TestShare(t *testing.T) {
	checkLeaks(t)
	var closed []uint64
	stop := OnClose(func(id uint64) { closed = append(closed, id) })
	s, err := NewSegment(3 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	s.Bytes()[5] = 7
	if ByID(s.ID()) != s || ByID(s.ID()+1) != nil {
		t.Error("ByID finds another segment")
	}
	var fd, size, color int
	dup := func(own, n, c int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		size, color = n, c
		return err
	}
	if err := Share(s.ID(), dup); err != nil || size != s.Size() || color != s.Color() {
		t.Fatalf("shared %d, %d, %d, %v", fd, size, color, err)
	}
	defer unix.Close(fd)
	s.Close()
	if !slices.Equal(closed, []uint64{s.ID()}) {
		t.Errorf("announced %v, want the segment that was closed", closed)
	}
	m, err := Map(fd, int64(size), color)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if m.Bytes()[5] != 7 {
		t.Error("the mapping shows other memory")
	}
	if Share(s.ID(), dup) == nil {
		t.Error("a closed segment was shared")
	}
	stop()
	s, err = NewSegment(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if len(closed) != 1 {
		t.Error("announced after stop")
	}
}
