//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"errors"
	"fmt"
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

// compilerScript is a command that compiles nothing: it answers the first sources with an error in them, and does
// something to the one after.
func compilerScript(t *testing.T, sources int, then string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compiler")
	text := "#!/bin/sh\necho '{\"Step\":\"ready\"}' >&4\n"
	for range sources {
		text += "read -r source <&3\necho '{\"Step\":\"opened\"}{\"Step\":\"done\",\"Error\":\"wrong\",\"Code\":-11}' >&4\n"
	}
	text += "read -r source <&3\necho '{\"Step\":\"opened\"}' >&4\n" + then + "\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	sourceText = "kernel void one(global int *p) { p[0] = 1; }"
	crash      = "echo gone >&2\nkill -SEGV $$"
)

// A process that ends or hangs at a source is an error here, which is kept for that source: others are compiled by the
// next process. One that ends at the first source is a driver that compiles nothing.
func TestCompilerInAnotherProcess(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d := open(t, opencl.Options{})
	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 1, crash))
	var refused *opencl.CompileError
	crashed := func(text string) {
		t.Helper()
		err := loadSource(d, text)
		if !errors.Is(err, device.ErrUnsupported) || !strings.Contains(err.Error(), "has ended its process: signal: segm") ||
			!strings.Contains(err.Error(), "gone") || !strings.Contains(err.Error(), "kept in") {
			t.Errorf("a compiler that crashes: %v", err)
		}
		t.Setenv("CHORUS_OPENCL_COMPILER", "/bin/false")
		if again := loadSource(d, text); again == nil || again.Error() != err.Error() {
			t.Errorf("the second time: %v, and the first time %v", again, err)
		}
	}
	crashed("// crashes\n" + sourceText)
	if err := loadSource(d, sourceText); !errors.Is(err, device.ErrUnsupported) ||
		!strings.Contains(err.Error(), "hasn't this package") {
		t.Errorf("a command that compiles nothing: %v", err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 3, ""))
	for k := range 3 {
		err := loadSource(d, fmt.Sprintf("// %d\n%s", k, sourceText))
		if !errors.As(err, &refused) || refused.Log != "wrong" {
			t.Errorf("a source that is refused: %v", err)
		}
	}

	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 0, "sleep 1000"))
	t.Setenv("CHORUS_OPENCL_COMPILER_TIMEOUT", "0.3")
	hangs := loadSource(d, "// hangs\n"+sourceText)
	if !errors.Is(hangs, device.ErrUnsupported) || !strings.Contains(hangs.Error(), "compiler has hung for 300ms") {
		t.Errorf("a compiler that hangs: %v", hangs)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER_TIMEOUT", "60")

	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d = open(t, opencl.Options{})
	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 0, crash))
	crashed(sourceText)
	crashed("// another one, for which there's no process\n" + sourceText)

	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d = open(t, opencl.Options{})
	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 1, "kill -KILL $$"))
	if err := loadSource(d, sourceText); !errors.Is(err, device.ErrUnsupported) || strings.Contains(err.Error(), "kept") {
		t.Errorf("a process that somebody has killed: %v", err)
	}
}

// The process of a host's command compiles, and where it can't, this one does.
func TestCompilerOfAHost(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d := open(t, opencl.Options{})
	works := compiles(t, d, 0)
	wrong := func(why string) {
		t.Helper()
		var refused *opencl.CompileError
		if err := loadSource(d, "kernel void bad( {"); !errors.As(err, &refused) || refused.Log == "" ||
			!errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("a source that is wrong, %s: %v", why, err)
		}
	}
	defer opencl.CompileApart()
	for _, command := range []string{"/nonesuch", "/bin/true"} {
		opencl.CompileApart(command)
		wrong(command)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", "none")
	opencl.CompileApart(compilerScript(t, 0, crash))
	wrong("none")
	t.Setenv("CHORUS_OPENCL_COMPILER", "")

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opencl.CompileApart(self)
	wrong("in another process")
	if !works {
		return
	}
	if err := loadSource(d, sourceText); err != nil {
		t.Errorf("a source that is right: %v", err)
	}
	image, err := d.(device.Compiler).ModuleCompile(0, []byte("// compiled\n"+sourceText))
	if err != nil || len(image) == 0 {
		t.Errorf("a program of %d bytes: %v", len(image), err)
	}
	opencl.CompileApart(compilerScript(t, 0, crash))
	if err := loadSource(d, sourceText); err != nil {
		t.Errorf("a source that was compiled before: %v", err)
	}
}
