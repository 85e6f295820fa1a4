//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl"
)

func loadSource(d device.Driver, text string) error {
	m := d.(device.Modules)
	h, err := m.ModuleLoad(0, []byte(text))
	if err == nil {
		err = m.ModuleUnload(h)
	}
	return err
}

// A process that compiles and ends in it is an error here, which is kept; so is one that has the source refused. The
// program is kept, so that no process is needed the next time.
func TestCompilerInAnotherProcess(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d := open(t, opencl.Options{})
	works := compiles(t, d, 0)
	const text = "kernel void one(global int *p) { p[0] = 1; }"

	crash := filepath.Join(t.TempDir(), "crash")
	if err := os.WriteFile(crash, []byte("#!/bin/sh\necho gone >&2\nkill -SEGV $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", crash)
	err := loadSource(d, "// crashes\n"+text)
	if !errors.Is(err, device.ErrUnsupported) || !strings.Contains(err.Error(), "has ended its process") ||
		!strings.Contains(err.Error(), "gone") {
		t.Errorf("a compiler that crashes: %v", err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", "/bin/true")
	if again := loadSource(d, "// crashes\n"+text); again == nil || again.Error() != err.Error() {
		t.Errorf("the second time: %v, and the first time %v", again, err)
	}
	if err := loadSource(d, text); !errors.Is(err, device.ErrUnsupported) ||
		!strings.Contains(err.Error(), "hasn't this package") {
		t.Errorf("a command that compiles nothing: %v", err)
	}

	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	var refused *opencl.CompileError
	if err := loadSource(d, "kernel void bad( {"); !errors.As(err, &refused) || refused.Log == "" ||
		!errors.Is(err, device.ErrInvalidArgument) {
		t.Errorf("a source that is wrong: %v", err)
	}
	if !works {
		return
	}
	if err := loadSource(d, text); err != nil {
		t.Errorf("a source that is right: %v", err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", crash)
	if err := loadSource(d, text); err != nil {
		t.Errorf("a source that was compiled before: %v", err)
	}
}
