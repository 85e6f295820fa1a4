package kept

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/testutil"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Damaged files are told from whole ones, and are written anew.
func TestDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	f, key, image := Open(dir), KeyOf("compiler 1", []byte("source")), bytes.Repeat([]byte("image"), 1000)
	if _, err := f.Get(key); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("an empty folder has a program: ", err)
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
		"garbage behind the head": func(b []byte) []byte {
			return append(b[:len(magic)+64:len(magic)+64], bytes.Repeat([]byte("garbage"), 900)...)
		},
		"another program, by an unkeyed checksum": func(b []byte) []byte {
			sum := sha256.Sum256([]byte("program"))
			return append(append(b[:len(magic)+32:len(magic)+32], sum[:]...), "program"...)
		},
	}
	for what, change := range damage {
		must(t, f.Put(key, image))
		b, err := os.ReadFile(file(dir, key))
		must(t, err)
		must(t, os.WriteFile(file(dir, key), change(b), 0o600))
		got, err := f.Get(key)
		if what == "nothing" && (err != nil || !bytes.Equal(got, image)) || what != "nothing" && err != ErrDamaged {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	f.Remove(key)
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 || filepath.Base(files[0]) != sealName {
		t.Errorf("files: %v", files)
	}
	if KeyOf("compiler 2", []byte("source")) == key || KeyOf("compiler 1", []byte("source2")) == key {
		t.Error("other compilers or sources have the same key")
	}
}

// Without the seal programs aren't given out, and one that is damaged is made anew.
func TestSeal(t *testing.T) {
	dir, key := t.TempDir(), KeyOf("compiler", []byte("source"))
	must(t, Open(dir).Put(key, []byte("image")))
	seal := filepath.Join(dir, sealName)
	for what, change := range map[string]func() error{
		"cut short": func() error { return os.Truncate(seal, 3) },
		"too long":  func() error { return os.WriteFile(seal, make([]byte, 99), 0o600) },
		"another":   func() error { return os.WriteFile(seal, make([]byte, 32), 0o600) },
		"missing":   func() error { return os.Remove(seal) },
	} {
		must(t, change())
		f := Open(dir)
		if got, err := f.Get(key); err == nil {
			t.Errorf("%s: given out: %q", what, got)
		}
		must(t, f.Put(key, []byte("image")))
		if got, err := Open(dir).Get(key); err != nil || string(got) != "image" {
			t.Errorf("%s, then written: %q, %v", what, got, err)
		}
	}
}

// A folder that can't be written, or is full, has errors and nothing worse.
func TestUnwritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, nil, 0o600))
	for _, dir := range []string{path, filepath.Join(path, "kernels"), "/proc/self/kernels", "/dev/full"} {
		f, key := Open(dir), KeyOf("c", []byte(dir))
		if f.Put(key, []byte("image")) == nil {
			t.Errorf("%s: written", dir)
		}
		if _, err := f.Get(key); err == nil {
			t.Errorf("%s: read", dir)
		}
	}
}

// logged has what is logged during a test.
func logged(t *testing.T) *strings.Builder {
	var text strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

// A program that another user could have put there isn't given out, and nothing is written beside it. That's said once.
func TestOtherUsers(t *testing.T) {
	for what, c := range map[string]struct{ folder, file fs.FileMode }{
		"folder": {0o777, 0o600},
		"sticky": {0o777 | fs.ModeSticky, 0o600},
		"file":   {0o755, 0o666},
	} {
		t.Run(what, func(t *testing.T) {
			dir, text := testutil.OpenDir(t, sys.OwnFolder), logged(t)
			key := KeyOf("compiler", []byte("source"))
			must(t, Open(dir).Put(key, []byte("planted")))
			must(t, os.Chmod(dir, c.folder))
			must(t, os.Chmod(file(dir, key), c.file))
			for range 2 {
				f := Open(dir)
				if got, err := f.Get(key); err == nil {
					t.Errorf("given out: %q", got)
				}
				if f.Put(key, []byte("image")) == nil {
					t.Error("written")
				}
			}
			if got := text.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "chmod go-w") {
				t.Errorf("logged: %s", got)
			}
		})
	}
}

// Processes that write the same files at once find whole ones or none.
func TestProcesses(t *testing.T) {
	const name = "CHORUS_TEST_KEPT"
	image := func(k int) []byte { return bytes.Repeat([]byte(strconv.Itoa(k)), 50_000) }
	if dir := os.Getenv(name); dir != "" {
		f := Open(dir)
		for round := range 200 {
			k := round % 5
			key := KeyOf("c", []byte{byte(k)})
			got, err := f.Get(key)
			if err == nil && !bytes.Equal(got, image(k)) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			must(t, f.Put(key, image(k)))
		}
		return
	}
	dir := t.TempDir()
	var all []*exec.Cmd
	for range 3 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
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
