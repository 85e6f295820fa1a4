//go:build cgo

package capi

import (
	"testing"

	"github.com/chorus-comms/chorus/kernel/loader"
)

// Each device's loader compiles what was added, once.
func TestAskAll(t *testing.T) {
	if _, err := sources.add("KERNEL void asked(GLOBAL f32 *p) { p[0] = 1; }", newAdded); err != nil {
		t.Fatal(err)
	}
	for k, l := range []*loader.Loader{new(loader.Loader), new(loader.Loader)} {
		if first, again := len(askAll(l)), len(askAll(l)); first != 1 || again != 0 {
			t.Errorf("loader %d is asked for %d kernels, and then for %d", k, first, again)
		}
	}
}
