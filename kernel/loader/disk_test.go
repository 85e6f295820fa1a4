package loader

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/kept"
)

// PyTorch's variables say where kernels are kept.
func TestDiskPlace(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	if d := OpenDisk(&config.Config{KernelCache: true}); d == nil || d.files.Path() != filepath.Join(home, "torch", "kernels") {
		t.Errorf("no path: %v", d)
	}
	if d := OpenDisk(&config.Config{KernelCache: true, KernelCachePath: "/k"}); d == nil || d.files.Path() != "/k" {
		t.Errorf("a path: %v", d)
	}
	if d := OpenDisk(&config.Config{KernelCachePath: "/k"}); d != nil {
		t.Error("switched off, and there is one")
	}
}

// A missing file is no failure. A damaged one is, and so is one that can't be written.
func TestDiskStats(t *testing.T) {
	dir := t.TempDir()
	d, key := newDisk(dir), kept.KeyOf("compiler", []byte("source"))
	step := func(what string, found bool, want DiskStats) {
		t.Helper()
		if image, ok := d.get(key); ok != found || ok && string(image) != "image" || d.Stats() != want {
			t.Errorf("%s: %q, %v, %+v", what, image, ok, d.Stats())
		}
	}
	step("nothing", false, DiskStats{Misses: 1})
	d.put(key, []byte("image"))
	step("an image", true, DiskStats{Hits: 1, Misses: 1})
	files, err := filepath.Glob(filepath.Join(dir, "chorus_*"))
	if err := errors.Join(err, os.Truncate(files[0], 20)); err != nil {
		t.Fatal(err)
	}
	step("a damaged one", false, DiskStats{Hits: 1, Misses: 2, Failures: 1})
	d = newDisk(files[0])
	d.put(key, []byte("image"))
	step("no folder", false, DiskStats{Misses: 1, Failures: 2})
}
