//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl"
)

// A program without code is told from a whole one, and from another driver's.
func TestHalfWrittenImage(t *testing.T) {
	for image, want := range map[string]bool{"": false, "poclbin\x00": true, "poclbin\x00 BC\xc0\xde": false, "\x7fELF": false} {
		if got := opencl.HalfWritten([]byte(image)); got != want {
			t.Errorf("%q: %t", image, got)
		}
	}
}

// A process that compiles has a folder of its own, which goes with it: a file of PoCL's that another process has left
// empty does no harm.
func TestHalfWrittenProgram(t *testing.T) {
	folder := os.Getenv("POCL_CACHE_DIR")
	codes := func() map[string]bool {
		paths, _ := filepath.Glob(filepath.Join(folder, "*", "*", "program.bc"))
		found := map[string]bool{}
		for _, path := range paths {
			found[path] = true
		}
		return found
	}
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		return
	}
	c := d.(device.Compiler)
	// PoCL's files are by the source without comments.
	text := fmt.Appendf(nil, "kernel void k%d(global int *p) { p[0] = 1; }", time.Now().UnixNano())
	t.Setenv("CHORUS_OPENCL_COMPILER", "none")
	before := codes()
	if _, err := c.ModuleCompile(0, text); err != nil {
		t.Fatal(err)
	}
	code := ""
	for path := range codes() {
		if !before[path] {
			code = path
		}
	}
	if code == "" {
		t.Skip("left out: the driver is not PoCL, or keeps its files elsewhere")
	}
	if err := os.Truncate(code, 0); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	t.Setenv("TMPDIR", t.TempDir())
	image, err := c.ModuleCompile(0, text)
	if err != nil {
		t.Fatal("another process: ", err)
	}
	if err := os.RemoveAll(filepath.Dir(code)); err != nil {
		t.Fatal(err)
	}
	m, err := d.(device.Modules).ModuleLoad(0, image)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.(device.Modules).ModuleUnload(m); err != nil {
		t.Error(err)
	}
	folders := func() int {
		found, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
		return len(found)
	}
	if folders() != 1 {
		t.Errorf("%d folders of processes that compile, while there is one", folders())
	}
	if err := d.(device.Closer).Close(); err != nil {
		t.Error(err)
	}
	if folders() != 0 {
		t.Errorf("%d folders are left", folders())
	}
}
