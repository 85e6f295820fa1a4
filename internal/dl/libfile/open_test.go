//go:build linux

package libfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCheck checks what may stand in a library's place, by its path and in LD_LIBRARY_PATH.
func TestCheck(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		syscall.Mkfifo(path("fifo"), 0o600),
		os.Symlink("/dev/zero", path("device")),
		os.Mkdir(path("dir"), 0o700),
		os.WriteFile(path("cut"), program[:len(program)/3], 0o600),
		os.WriteFile(path("sparse"), nil, 0o600),
		os.Truncate(path("sparse"), 40<<30),
		os.WriteFile(path("text"), []byte("INPUT(libother.so)"), 0o600),
		os.WriteFile(path("whole"), program, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", "/none:"+dir)
	for name, want := range map[string]struct{ check, open string }{
		"fifo": {"it's a FIFO", "it's a FIFO"}, "device": {"it's a device", "it's a device"},
		"dir": {"it's a directory", "it's a directory"}, "cut": {"its end is missing", "no shared library"},
		"sparse": {"", "no shared library"}, "text": {"", "no shared library"}, "none": {"", "no such file"},
		"whole": {"", ""},
	} {
		for _, place := range []string{path(name), name} {
			err := Check(place)
			if (err == nil) != (want.check == "") || err != nil && (!strings.Contains(err.Error(), want.check) ||
				!strings.Contains(err.Error(), path(name))) {
				t.Errorf("Check(%s) = %v, want %q", place, err, want.check)
			}
		}
		f, err := Open(path(name))
		if (err == nil) != (want.open == "") || err != nil && !strings.Contains(err.Error(), want.open) {
			t.Errorf("Open(%s): %v, want %q", name, err, want.open)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestSections reads sections that announce more than a file has.
func TestSections(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Constants()) == 0 {
		t.Error("no constants")
	}
	for _, s := range f.Sections {
		s.Size = 1 << 50
	}
	if _, err := f.Defined(); err == nil {
		t.Error("symbols in sections that are larger than the file")
	}
	if got := f.Constants(); got != nil {
		t.Errorf("%d bytes of constants", len(got))
	}
}
