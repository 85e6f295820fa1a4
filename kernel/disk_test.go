package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// PyTorch's variables say where kernels are kept.
func TestDiskPlace(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	if d := OpenDisk(&config.Config{KernelCache: true}); d == nil || d.dir != filepath.Join(home, "torch", "kernels") {
		t.Errorf("no path: %+v", d)
	}
	if d := OpenDisk(&config.Config{KernelCache: true, KernelCachePath: "/k"}); d == nil || d.dir != "/k" {
		t.Errorf("a path: %+v", d)
	}
	if d := OpenDisk(&config.Config{KernelCachePath: "/k"}); d != nil {
		t.Error("switched off, and there is one")
	}
}

// Damaged files count as missing, and are written anew.
func TestDiskDamage(t *testing.T) {
	d := &Disk{dir: filepath.Join(t.TempDir(), "a", "b")}
	key, image := newDiskKey("compiler 1", []byte("source")), bytes.Repeat([]byte("image"), 1000)
	if _, ok := d.get(key); ok {
		t.Fatal("an empty cache has an image")
	}
	damage := map[string]func(b []byte) []byte{
		"nothing":           func(b []byte) []byte { return b },
		"cut short":         func(b []byte) []byte { return b[:len(b)-1] },
		"cut in its head":   func(b []byte) []byte { return b[:40] },
		"empty":             func(b []byte) []byte { return nil },
		"a changed byte":    func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"another key":       func(b []byte) []byte { b[len(magic)] ^= 1; return b },
		"another format":    func(b []byte) []byte { b[len(magic)-2]++; return b },
		"more than a whole": func(b []byte) []byte { return append(b, 0) },
	}
	for what, change := range damage {
		d.put(key, image)
		b, err := os.ReadFile(d.file(key))
		must(t, err)
		must(t, os.WriteFile(d.file(key), change(b), 0o600))
		before := d.Stats()
		got, ok := d.get(key)
		if ok != (what == "nothing") || ok && !bytes.Equal(got, image) {
			t.Errorf("%s: found: %v", what, ok)
		}
		if failures := d.Stats().Failures - before.Failures; (failures == 1) != !ok {
			t.Errorf("%s: %d failures counted", what, failures)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(d.dir, "*")); len(files) != 1 {
		t.Errorf("files: %v", files)
	}
	if newDiskKey("compiler 2", []byte("source")) == key || newDiskKey("compiler 1", []byte("source2")) == key {
		t.Error("other compilers or sources have the same key")
	}
}

// A directory that can't be written, or is full, fails nothing.
func TestDiskUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{filepath.Join(file, "kernels"), "/proc/self/kernels", "/dev/full"} {
		d := &Disk{dir: dir}
		key := newDiskKey("c", []byte(dir))
		d.put(key, []byte("image"))
		if _, ok := d.get(key); ok || d.Stats().Failures == 0 {
			t.Errorf("%s: %v, %+v", dir, ok, d.Stats())
		}
	}
}

// Processes that write the same files at once find whole ones or none.
func TestDiskProcesses(t *testing.T) {
	const name = "CHORUS_TEST_KERNEL_DISK"
	image := func(k int) []byte { return bytes.Repeat([]byte(strconv.Itoa(k)), 50_000) }
	if dir := os.Getenv(name); dir != "" {
		d := &Disk{dir: dir}
		for round := range 200 {
			k := round % 5
			key := newDiskKey("c", []byte{byte(k)})
			if got, ok := d.get(key); ok && !bytes.Equal(got, image(k)) {
				t.Fatal("another image")
			}
			d.put(key, image(k))
		}
		if s := d.Stats(); s.Failures > 0 || s.Hits == 0 {
			t.Fatalf("%+v", s)
		}
		return
	}
	dir := t.TempDir()
	var all []*exec.Cmd
	for range 3 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiskProcesses$")
		c.Env = append(os.Environ(), name+"="+dir)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		must(t, c.Start())
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
}
