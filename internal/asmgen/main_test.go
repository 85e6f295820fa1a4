package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The committed assembly must be what the generator writes; run "go generate" in kern if it isn't.
func TestCommitted(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 6 {
		t.Errorf("%d files, want assembly and Go of three instruction sets", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", "kern", name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("kern/%s is not what the generator writes", name)
		}
	}
}
