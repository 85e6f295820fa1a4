package sys

import (
	"errors"
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
