package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFilesAreCurrent compares the files with what this program writes.
func TestFilesAreCurrent(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: go run ./capi/gen", name)
		}
	}
}
