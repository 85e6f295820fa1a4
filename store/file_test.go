package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

// The bytes of the file, as both 1.13 and 2.14 of PyTorch write them.
func TestFileFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := file(t, path, store.FileOptions{})
	if err := s.Set(t.Context(), "k", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(t.Context(), "n", 5); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	want := "\x09\x00\x00\x00refcount/\x01\x00\x00\x001" +
		"\x02\x00\x00\x00/k\x05\x00\x00\x00value" +
		"\x02\x00\x00\x00/n\x01\x00\x00\x005" +
		"\x03\x00\x00\x00-/k\x00\x00\x00\x00"
	if got, err := os.ReadFile(path); string(got) != want || err != nil {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
}

func TestFileCleanup(t *testing.T) {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for _, style := range []store.Cleanup{store.CleanupRefcount, store.CleanupCount} {
		path := filepath.Join(t.TempDir(), "f")
		opts := store.FileOptions{WorldSize: 2, Cleanup: style}
		a, b := file(t, path, opts), file(t, path, opts)
		if err := a.Set(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil || !exists(path) {
			t.Errorf("%v: after one of two: there is a file: %v, %v", style, exists(path), err)
		}
		if err := a.Close(); err != nil || !exists(path) {
			t.Errorf("%v: closing twice counted twice", style)
		}
		if err := b.Close(); err != nil || exists(path) {
			t.Errorf("%v: after both: there is a file: %v, %v", style, exists(path), err)
		}
	}
	// More stores than ranks: the last one matters, not the second.
	path := filepath.Join(t.TempDir(), "f")
	opts := store.FileOptions{WorldSize: 2}
	a, b, c := file(t, path, opts), file(t, path, opts), file(t, path, opts)
	a.Close()
	b.Close()
	if !exists(path) {
		t.Error("the file was removed while it was open")
	}
	c.Close()
	if exists(path) {
		t.Error("the file is still there")
	}
	// Without a world size it stays.
	a = file(t, path, store.FileOptions{})
	a.Close()
	if !exists(path) {
		t.Error("the file was removed")
	}
	// A file that was removed is not made again.
	b = file(t, path, store.FileOptions{WorldSize: 1})
	os.Remove(path)
	if err := b.Close(); err != nil || exists(path) {
		t.Errorf("there is a file: %v, %v", exists(path), err)
	}
}

// A process that was killed while it wrote leaves half a record, which the next
// writer cuts off.
func TestFileTornRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	a, b := file(t, path, store.FileOptions{}), file(t, path, store.FileOptions{})
	if err := a.Set(t.Context(), "k", []byte("whole")); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("\x02\x00\x00\x00/k\x05\x00\x00\x00hal")
	f.Close()
	for _, s := range []store.Store{a, b} {
		if v, err := s.Get(t.Context(), "k"); string(v) != "whole" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	}
	if err := b.Set(t.Context(), "next", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if v, err := store.MultiGet(t.Context(), a, "k", "next"); err != nil || string(v[0]) != "whole" ||
		string(v[1]) != "1" {
		t.Errorf("got %q, %v", v, err)
	}
}

// A file that is seen to be another one is read from its beginning.
func TestFileReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	a := file(t, path, store.FileOptions{})
	if err := a.Set(t.Context(), "old", []byte("longer than what comes")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	b := file(t, path, store.FileOptions{})
	if err := b.Set(t.Context(), "new", []byte("short")); err != nil {
		t.Fatal(err)
	}
	if old, err := a.Check(t.Context(), "old"); old || err != nil {
		t.Errorf("the old key is there: %v, %v", old, err)
	}
	if ok, err := a.Check(t.Context(), "new"); !ok || err != nil {
		t.Errorf("the new key is there: %v, %v", ok, err)
	}
}

// TestFileOfAnother opens stores on files that hold something else. None of them is changed, also behind a symlink.
func TestFileOfAnother(t *testing.T) {
	const log = "\x09\x00\x00\x00refcount/\x01\x00\x00\x001\x02\x00\x00\x00/k\x01\x00\x00\x00v"
	for name, content := range map[string]string{
		"text":                 "the only copy of my thesis\n",
		"brief":                "1\n",
		"brief zero":           "\x00",
		"absolute path":        "\x00\x00\x00\x00/usr/bin/true",
		"long announced key":   "abcd/efghijkl",
		"program":              "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 4096),
		"zeros":                strings.Repeat("\x00", 1<<17),
		"other key":            "\x03\x00\x00\x00abc\x00\x00\x00\x00",
		"no number":            "\x09\x00\x00\x00refcount/\x03\x00\x00\x00abc",
		"value of a deletion":  "\x03\x00\x00\x00-/k\x01\x00\x00\x00v",
		"long announced value": "\x02\x00\x00\x00/k\xff\xff\xff\xffv",
		"text behind records":  log + "and then the thesis\n",
	} {
		for _, cleanup := range []store.Cleanup{store.CleanupRefcount, store.CleanupCount} {
			dir := t.TempDir()
			path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
			if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Symlink(path, link)); err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{path, link} {
				s, err := store.OpenFile(t.Context(), at, store.FileOptions{WorldSize: 1, Cleanup: cleanup})
				if err == nil || !strings.Contains(err.Error(), "isn't a store's file") || !strings.Contains(err.Error(), at) {
					t.Errorf("%s: %v, %v", name, s, err)
				}
				if got, err := os.ReadFile(path); string(got) != content || err != nil {
					t.Errorf("%s: it holds %q now, %v", name, got, err)
				}
			}
			if _, err := store.Open(t.Context(), "file://"+link, store.OpenOptions{}); !errors.Is(err, store.ErrOptions) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestFileOfNoStore opens stores where no file can be one: none is waited for, and none takes memory.
func TestFileOfNoStore(t *testing.T) {
	dir := t.TempDir()
	sparse := filepath.Join(dir, "sparse")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 40<<30)); err != nil {
		t.Skip(err) // of a file system without holes
	}
	for path, says := range map[string]string{sparse: "isn't a store's file", dir: "directory", os.DevNull: "device"} {
		s, err := store.OpenFile(t.Context(), path, store.FileOptions{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
}

// TestFileBegun opens stores on files of jobs that were killed early: they're stores' files.
func TestFileBegun(t *testing.T) {
	const first = "\x09\x00\x00\x00refcount/\x01\x00\x00\x001"
	for _, content := range []string{"", first[:5], first[:12], first[:len(first)-1], first, "\x04\x00\x00\x00-", "\x02\x00\x00\x00/k\x01"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		a, b := file(t, path, store.FileOptions{}), file(t, path, store.FileOptions{})
		if err := a.Set(t.Context(), "k", []byte("v")); err != nil {
			t.Errorf("%q: %v", content, err)
		}
		if v, err := b.Get(t.Context(), "k"); string(v) != "v" || err != nil {
			t.Errorf("%q: %q, %v", content, v, err)
		}
	}
}

// TestFileLongRecords reads records that are longer than what is read at a time.
func TestFileLongRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	a := file(t, path, store.FileOptions{})
	long := strings.Repeat("long", 1<<18)
	for _, key := range []string{"a", "b"} {
		if err := a.Set(t.Context(), key, []byte(long+key)); err != nil {
			t.Fatal(err)
		}
	}
	b := file(t, path, store.FileOptions{})
	if v, err := b.MultiGet(t.Context(), "a", "b"); err != nil || string(v[0]) != long+"a" || string(v[1]) != long+"b" {
		t.Errorf("%d values, %v", len(v), err)
	}
	if testutil.Short() {
		return
	}
	if err := a.Set(t.Context(), "c", make([]byte, 257<<20)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

// A key that readers would take for something else in the file is refused before anything is written.
func TestFileLongKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := file(t, path, store.FileOptions{})
	if err := s.Set(t.Context(), strings.Repeat("k", 1<<17), nil); err == nil ||
		!strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("a key of 128 KiB: %v", err)
	}
	key := strings.Repeat("k", 60000)
	if err := s.Set(t.Context(), key, []byte("v")); err != nil {
		t.Error(err)
	}
	if v, err := file(t, path, store.FileOptions{}).Get(t.Context(), key); err != nil || string(v) != "v" {
		t.Errorf("a key of 60,000 bytes: %q, %v", v, err)
	}
}
