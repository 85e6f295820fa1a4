package main

import (
	"os"
	"testing"
)

// TestHeaderIsCurrent compares chorus.h with what this program writes.
func TestHeaderIsCurrent(t *testing.T) {
	want, err := header()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../chorus.h")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("capi/chorus.h is out of date: go run ./capi/gen > capi/chorus.h")
	}
}
