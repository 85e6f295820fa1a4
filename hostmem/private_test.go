package hostmem

import (
	"errors"
	"syscall"
	"testing"
)

// Memory of this process alone comes and goes piece by piece as that of a memory file does.
func TestPrivateSparse(t *testing.T) {
	checkLeaks(t)
	const size = 1 << 38
	s, err := newSegment(size, func(int) (int, error) { return private, nil }, leaveOut)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Shared() || s.FD() != -1 || ByID(s.ID()) != nil {
		t.Errorf("shared %v with descriptor %d", s.Shared(), s.FD())
	}
	at := size - 16*pageSize
	if err := s.Commit(at, 4*pageSize); err != nil {
		t.Fatal(err)
	}
	s.Bytes()[at+5], s.Bytes()[at+3*pageSize] = 7, 8
	if err := s.Decommit(at, 2*pageSize); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(at, pageSize); err != nil {
		t.Fatal(err)
	}
	if s.Bytes()[at+5] != 0 || s.Bytes()[at+3*pageSize] != 8 {
		t.Errorf("memory that was taken away came back with %d, and what was kept has %d", s.Bytes()[at+5],
			s.Bytes()[at+3*pageSize])
	}
	if s.Commit(1, pageSize) == nil || s.Decommit(0, 1) == nil {
		t.Error("what isn't whole pages was accepted")
	}
}

// Where there are no memory files, allocators have memory all the same, and what is meant for peers says what is
// missing.
func TestWithoutMemoryFiles(t *testing.T) {
	checkLeaks(t)
	a, err := AllocSparse(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Shared() != memoryFiles {
		t.Errorf("shared is %v", a.Shared())
	}
	for name, open := range map[string]func(int) (*Segment, error){"NewSegment": NewSegment, "NewSparse": NewSparse} {
		s, err := open(1)
		if memoryFiles && err == nil {
			s.Close()
		} else if memoryFiles || !errors.Is(err, syscall.ENOSYS) ||
			err.Error() != "shared memory between processes needs Linux" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
