package store_test

import (
	"os"
	"path/filepath"
	"testing"

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
