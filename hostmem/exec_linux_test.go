//go:build !chorus_portable

package hostmem

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A child process inherits no segment, except one that is passed on purpose; that one it can map and change.
func TestChildProcess(t *testing.T) {
	if os.Getenv("CHORUS_HOSTMEM_CHILD") != "" {
		if n := memfds(t); n != 1 {
			t.Fatalf("the child has %d memory files, want the one passed to it", n)
		}
		m, err := Map(3, int64(pageSize), 12)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Unmap()
		m.Bytes()[0]++
		return
	}
	checkLeaks(t)
	b, err := AllocZero(100)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	s, err := NewSegment(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Bytes()[0] = 41
	// The file is over a duplicate, because closing it must not close the segment's descriptor.
	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "segment")
	defer file.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "CHORUS_HOSTMEM_CHILD=1")
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("left out: an emulator runs this test, and can't start it again")
	}
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Fatalf("child: %v\n%s", err, out)
	}
	if s.Bytes()[0] != 42 {
		t.Errorf("the child's store is not seen: %d", s.Bytes()[0])
	}
}
