//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// A program without code is told from a whole one, and from another driver's.
func TestHalfWrittenImage(t *testing.T) {
	for image, want := range map[string]bool{"": false, "poclbin\x00": true, "poclbin\x00 BC\xc0\xde": false, "\x7fELF": false} {
		if got := opencl.HalfWritten([]byte(image)); got != want {
			t.Errorf("%q: %t", image, got)
		}
	}
}

// PoCL gets another folder than one that other users can change, or that lies in one.
func TestPoCLFolderOfOthers(t *testing.T) {
	libc, err := dl.Source{Name: "libc", Candidates: []string{"libc.so.6"}}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	const name = "POCL_CACHE_DIR"
	before := os.Getenv(name)
	t.Cleanup(func() { opencl.SetForLibraries(libc, name, before) })
	get, _ := libc.Symbol("getenv")
	same, _ := libc.Symbol("strcmp")
	title := append([]byte(name), 0)
	own := testutil.OpenDir(t, sys.OwnFolder)
	t.Setenv("TMPDIR", own)
	open := filepath.Join(own, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(own, fmt.Sprintf("chorus-pocl-%d", os.Geteuid()))
	for folder, want := range map[string]string{own: own, open: moved, filepath.Join(open, "a", "b"): moved,
		filepath.Join(own, "a", "b"): filepath.Join(own, "a", "b")} {
		opencl.SetForLibraries(libc, name, folder)
		opencl.ProtectPoCL(libc)
		value := append([]byte(want), 0)
		got := dl.Func(get).Call(uintptr(unsafe.Pointer(dl.Heap(&title[0]))))
		if dl.Func(same).Call(got, uintptr(unsafe.Pointer(dl.Heap(&value[0])))) != 0 || os.Getenv(name) != want {
			t.Errorf("%s: %q for Go, want %s for it and libraries", folder, os.Getenv(name), want)
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
	c := d.(driver.Compiler)
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
	m, err := d.(driver.Modules).ModuleLoad(0, image)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.(driver.Modules).ModuleUnload(m); err != nil {
		t.Error(err)
	}
	folders := func() int {
		found, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
		return len(found)
	}
	if folders() != 1 {
		t.Errorf("%d folders of processes that compile, while there is one", folders())
	}
	if err := d.(driver.Closer).Close(); err != nil {
		t.Error(err)
	}
	if folders() != 0 {
		t.Errorf("%d folders are left", folders())
	}
}
