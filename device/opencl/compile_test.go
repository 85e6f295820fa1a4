//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

func loadSource(d driver.Driver, text string) error {
	m := d.(driver.Modules)
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

// A process that ends or hangs at a source is an error here: the next source has the next process. Nothing of that is
// kept, since a full folder, a lack of memory or a signal says the same. One that ends at the first source is a driver
// that compiles nothing, as long as this process lasts.
func TestCompilerInAnotherProcess(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	d := open(t, opencl.Options{})
	use := func(command string) { t.Setenv("CHORUS_OPENCL_COMPILER", command) }
	unsupported := func(text string, want ...string) {
		t.Helper()
		err := loadSource(d, text)
		for _, w := range want {
			if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %q", err, w)
			}
		}
	}
	var refused *opencl.CompileError
	wrong := func(text string) {
		t.Helper()
		if err := loadSource(d, text); !errors.As(err, &refused) || refused.Log != "wrong" {
			t.Errorf("a source that is refused: %v", err)
		}
	}
	use(compilerScript(t, 1, crash))
	unsupported(sourceText, "has ended its process: signal: segm", "gone")
	use("/bin/false")
	unsupported(sourceText, "hasn't this package")
	use(compilerScript(t, 3, crash))
	wrong(sourceText) // which has ended a process before
	wrong(sourceText)
	wrong("// another one\n" + sourceText)
	unsupported(sourceText, "has ended its process")

	t.Setenv("CHORUS_OPENCL_COMPILER_TIMEOUT", "2")
	use(compilerScript(t, 0, "sleep 1000"))
	unsupported(sourceText, "compiler has hung, and has done nothing for", "CHORUS_OPENCL_COMPILER_TIMEOUT")
	use(compilerScript(t, 0, "while :; do :; done"))
	unsupported(sourceText, "compiler has hung, and has used", "of the processor's time")
	t.Setenv("CHORUS_OPENCL_COMPILER_TIMEOUT", "60")
	use(compilerScript(t, 1, crash))
	wrong(sourceText)

	d = open(t, opencl.Options{})
	use(compilerScript(t, 0, crash))
	unsupported(sourceText, "has ended its process")
	use(compilerScript(t, 9, crash))
	unsupported("// another one, for which there's no process\n"+sourceText, "has ended its process")
	d = open(t, opencl.Options{})
	wrong(sourceText)
	if kept, _ := filepath.Glob(filepath.Join(cache, "*")); len(kept) != 0 {
		t.Errorf("in the cache: %v", kept)
	}
}

// Sources of several threads are compiled at once: each of these processes waits for the other's.
func TestCompilersAtOnce(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("left out: there is one core")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d := open(t, opencl.Options{})
	path, met := filepath.Join(t.TempDir(), "compiler"), t.TempDir()
	text := "#!/bin/sh\necho '{\"Step\":\"ready\"}' >&4\nwhile read -r source <&3; do\n" +
		"case $source in *" + base64.StdEncoding.EncodeToString([]byte("kernel void probe(")) + "*) ;; *)\n" +
		"touch " + met + "/$$\nuntil [ $(ls " + met + " | wc -l) = 2 ]; do sleep 0.02; done;; esac\n" +
		"echo '{\"Step\":\"opened\"}{\"Step\":\"done\",\"Error\":\"wrong\",\"Code\":-11}' >&4\ndone\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", path)
	t.Setenv("CHORUS_OPENCL_COMPILER_TIMEOUT", "60")
	var both sync.WaitGroup
	for k := range 2 {
		both.Go(func() {
			var refused *opencl.CompileError
			if err := loadSource(d, fmt.Sprintf("// %d\n%s", k, sourceText)); !errors.As(err, &refused) {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// A compiler without room for its files says that a source doesn't compile. It's asked again when there is room.
func TestFullFolderIsNotKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("left out: the driver compiles nothing")
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 2, crash))
	if err := loadSource(d, sourceText); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("without room: %v", err)
	}
	for _, d := range []driver.Driver{d, open(t, opencl.Options{})} {
		t.Setenv("CHORUS_OPENCL_COMPILER", "self")
		if err := loadSource(d, sourceText); err != nil {
			t.Errorf("with room: %v", err)
		}
	}
}

// Garbage in place of a kept program, and a file that's damaged or another user's, are compiled again.
func TestKeptPrograms(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("left out: the driver compiles nothing")
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(loadSource(d, sourceText))
	files, _ := filepath.Glob(filepath.Join(cache, "chorus", "opencl", "chorus_*"))
	if len(files) != 1 {
		t.Fatalf("kept: %v", files)
	}
	whole, err := os.ReadFile(files[0])
	must(err)
	const head = 16 + 2*sha256.Size                            // magic, key, checksum
	forged := append(whole[:head:head], whole[head:head+8]...) // some drivers crash at what begins as a program of theirs
	forged = append(forged, bytes.Repeat([]byte("garbage"), 1000)...)
	sum := sha256.Sum256(forged[head:])
	copy(forged[16+sha256.Size:], sum[:])
	for what, change := range map[string]func() error{
		"garbage, with the right head": func() error { return os.WriteFile(files[0], forged, 0o600) },
		"damaged": func() error {
			return os.WriteFile(files[0], append(whole[:head:head], make([]byte, 1000)...), 0o600)
		},
		"whole, and anybody's": func() error { return os.Chmod(files[0], 0o666) },
	} {
		must(os.WriteFile(files[0], whole, 0o600))
		must(change())
		t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 2, crash))
		var refused *opencl.CompileError
		if err := loadSource(d, sourceText); !errors.As(err, &refused) {
			t.Errorf("%s: it's not compiled again: %v", what, err)
		}
		must(os.RemoveAll(files[0]))
	}
	must(os.WriteFile(files[0], whole, 0o600))
	must(loadSource(d, sourceText)) // no process: the script would refuse it
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
			!errors.Is(err, driver.ErrInvalidArgument) {
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
	image, err := d.(driver.Compiler).ModuleCompile(0, []byte("// compiled\n"+sourceText))
	if err != nil || len(image) == 0 {
		t.Errorf("a program of %d bytes: %v", len(image), err)
	}
	opencl.CompileApart(compilerScript(t, 0, crash))
	if err := loadSource(d, sourceText); err != nil {
		t.Errorf("a source that was compiled before: %v", err)
	}
}

// Divisions and square roots are correctly rounded on each device that can do so, which must be asked for.
func TestRoundedDivision(t *testing.T) {
	for _, can := range []bool{false, true} {
		var options string
		d := broken(t, func(l *opencl.Library) {
			info, build := l.DeviceInfo, l.ProgramBuild
			l.DeviceInfo = func(d abi.Device, what uint32, n uintptr, v unsafe.Pointer, ret *uintptr) abi.Result {
				r := info(d, what, n, v, ret)
				if what == abi.DeviceSingleFloat && v != nil {
					*(*uint64)(v) &^= abi.RoundedDivision
					if can {
						*(*uint64)(v) |= abi.RoundedDivision
					}
				}
				return r
			}
			l.ProgramBuild = func(p abi.Program, n uint32, devices *abi.Device, text *byte, done, arg uintptr) abi.Result {
				options = unix.BytePtrToString(text)
				return build(p, n, devices, text, done, arg)
			}
		})
		if err := loadSource(d, sourceText); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(options, "-cl-fp32-correctly-rounded-divide-sqrt"); got != can {
			t.Errorf("a device that can round (%v) gets the options %q", can, options)
		}
	}
}
