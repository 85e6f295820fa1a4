//go:build !chorus_portable

package hostmem

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil/seccomptest"
)

// A sandbox may refuse what memory files are made with: blocks are in private memory then, and it is said once.
// Segments to be shared are refused with the call's name.
func TestRefused(t *testing.T) {
	if os.Getenv("CHORUS_HOSTMEM_REFUSED") != "" {
		underRefusal(t)
		return
	}
	for _, c := range []struct {
		calls  string
		shared bool
		says   string // why not
	}{
		{"memfd_create=EPERM", false, "memfd_create: operation not permitted"},
		{"memfd_create=ENOSYS", false, "memfd_create: function not implemented"},
		{"memfd_create=EPERM madvise=ENOSYS", false, "memfd_create: operation not permitted"},
		{"ftruncate=EPERM", false, "ftruncate: operation not permitted"},
		{"fcntl(F_ADD_SEALS)=ENOSYS", false, "fcntl: function not implemented"},
		{"madvise=ENOSYS", true, ""},
		{"madvise=EPERM", true, ""},
		{"madvise=ENOSYS fallocate=ENOSYS", true, ""},
		{"madvise=EPERM fallocate=EPERM", true, ""},
	} {
		t.Run(c.calls, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestRefused$", "-test.v")
			cmd.Env = append(os.Environ(), "CHORUS_HOSTMEM_REFUSED=1", seccomptest.Env(strings.Fields(c.calls)...))
			raw, err := cmd.CombinedOutput()
			out := string(raw)
			if strings.Contains(out, "seccomptest: ") {
				t.Skip(out)
			}
			if err != nil || !strings.Contains(out, fmt.Sprint("shared ", c.shared)) || !strings.Contains(out, c.says) {
				t.Fatalf("%v; want shared %v, and %q:\n%s", err, c.shared, c.says, out)
			}
			if n := strings.Count(out, "can't be shared"); n != map[bool]int{false: 1, true: 0}[c.shared] {
				t.Errorf("it is said %d times that memory can't be shared:\n%s", n, out)
			}
		})
	}
}

// TestFileLimit has a limit on the size of files: blocks are in private memory, which is reported once, and shared
// segments fail with an error that names the limit. No thread gets SIGXFSZ.
func TestFileLimit(t *testing.T) {
	if os.Getenv("CHORUS_HOSTMEM_REFUSED") != "" {
		if _, err := NewSegment(1 << 20); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a segment beyond the limit: %v", err)
		}
		underRefusal(t)
		return
	}
	cmd := exec.Command("bash", "-c", `ulimit -f 1; exec "$0" "$@"`, os.Args[0], "-test.run=^TestFileLimit$", "-test.v")
	cmd.Env = append(os.Environ(), "CHORUS_HOSTMEM_REFUSED=1")
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil || strings.Count(out, "can't be shared") != 1 || !strings.Contains(out, "files may have 1024 bytes here") ||
		!strings.Contains(out, "shared false") {
		t.Errorf("%v\n%s", err, out)
	}
}

// underRefusal uses blocks of all sizes and says whether they can be shared.
func underRefusal(t *testing.T) {
	seg, err := NewSegment(1 << 20)
	if err != nil {
		fmt.Println("segment:", err)
	} else {
		m, err := Map(seg.FD(), int64(seg.Size()), seg.Color())
		if err != nil {
			t.Fatal(err)
		}
		seg.Bytes()[seg.Size()-1] = 42
		if m.Bytes()[seg.Size()-1] != 42 {
			t.Error("the mapping is of other memory")
		}
		m.Unmap()
		seg.Close()
	}
	for range 3 {
		for _, n := range []int{0, 1, 4000, 100_000, 3 << 20} {
			b, err := AllocZero(n)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range b.Bytes() {
				if v != 0 {
					t.Fatalf("byte %d of %d is %d", i, n, v)
				}
			}
			for i := range b.Bytes() {
				b.Bytes()[i] = 7
			}
			if _, _, found := Find(b.Pointer(), n); found != (seg != nil) {
				t.Errorf("a block of %d bytes is found as shared: %v", n, found)
			}
			if err := Share(b.Segment().ID(), func(int, int, int) error { return nil }); (err == nil) != (seg != nil) {
				t.Errorf("sharing a block of %d bytes: %v", n, err)
			}
			b.Free()
		}
	}
	Trim()
	if st := ReadStats(); st.InUse != 0 || st.Cached != 0 || st.Segments != 0 {
		t.Errorf("left behind: %+v", st)
	}
	fmt.Println("shared", seg != nil)
}
