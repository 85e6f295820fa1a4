//go:build unix

package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadRegular reads what may stand where a file is looked for. None of it is waited for.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, err := range map[string]error{
		"fifo":   syscall.Mkfifo(path("fifo"), 0o600),
		"file":   os.WriteFile(path("file"), []byte("four"), 0o600),
		"large":  os.WriteFile(path("large"), []byte("five5"), 0o600),
		"device": os.Symlink("/dev/zero", path("device")),
		"link":   os.Symlink("file", path("link")),
		"dir":    os.Mkdir(path("dir"), 0o700),
		"sparse": errors.Join(os.WriteFile(path("sparse"), nil, 0o600), os.Truncate(path("sparse"), 40<<30)),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"fifo": "it's a FIFO", "device": "it's a device", "dir": "it's a directory",
		"large": "it has more than 4 bytes", "sparse": "it has more than 4 bytes", "none": "no such file"} {
		if _, err := ReadRegular(path(name), 4); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := ReadRegular(path("none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, name := range []string{"file", "link"} {
		if got, err := ReadRegular(path(name), 4); err != nil || string(got) != "four" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestReadRegularDescriptor reads what a process was given: a pipe, and what has no end.
func TestReadRegularDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("four"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	at := func(f *os.File) string { return fmt.Sprintf("/dev/fd/%d", f.Fd()) }
	if got, err := ReadRegular(at(r), 4); err != nil || string(got) != "four" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ReadRegular(at(zero), 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Errorf("%q, %v", got, err)
	}
}
