//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/kept"
)

const addText = "kernel void add(global int *out, global const int *a, global const int *b, int n) {\n" +
	"\tfor (int i = get_global_id(0); i < n; i += get_global_size(0))\n\t\tout[i] = a[i] + b[i];\n}\n"

// The parameters of a kernel that another process has compiled are known, though a library such as Intel's doesn't tell
// them of a loaded program. So arguments are checked, and a pointer may lead anywhere into a buffer.
func TestParametersOfLoadedPrograms(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	ctx := context.Background()
	for _, from := range []string{"compiled", "kept", "given"} {
		libraries := load(t)
		for _, l := range libraries {
			l.KernelArgInfo = func(abi.Kernel, uint32, uint32, uintptr, unsafe.Pointer, *uintptr) abi.Result {
				return -19 // CL_KERNEL_ARG_INFO_NOT_AVAILABLE
			}
		}
		d, err := opencl.New(libraries, opencl.Options{Buffers: true})
		if err != nil {
			t.Fatal(err)
		}
		defer d.(driver.Closer).Close()
		if from == "compiled" && loadSource(d, addText) != nil {
			t.Skip("left out: the driver compiles nothing")
		}
		text := []byte(addText)
		if from == "given" {
			if text, err = d.(driver.Compiler).ModuleCompile(0, text); err != nil {
				t.Fatal(err)
			}
			if _, offsets, err := opencl.ProgramOf(text); err != nil || !offsets {
				t.Errorf("compiled with offsets: %t, %v", offsets, err)
			}
		}
		m := d.(driver.Modules)
		h, err := m.ModuleLoad(0, text)
		if err != nil {
			t.Fatal(from, err)
		}
		add, err := m.ModuleFunction(h, "add")
		if err != nil {
			t.Fatal(from, err)
		}
		a, err := m.FunctionAttributes(add)
		want := []driver.ParamKind{driver.ParamPointer, driver.ParamPointer, driver.ParamPointer, driver.ParamInt32}
		if err != nil || !slices.Equal(a.Params, want) {
			t.Errorf("%s: parameters %v, %v", from, a.Params, err)
		}
		const n = 100
		p, err := d.Malloc(0, 4*n)
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.StreamCreate(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		wrong := driver.Launch{Args: new(driver.Args).Pointer(p).Pointer(p).Pointer(p).Float32(1)}
		if err := m.FunctionLaunch(s, add, wrong); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: a float for an int: %v", from, err)
		}
		at := p.Add(4)
		host := make([]int32, n)
		l := driver.Launch{Args: new(driver.Args).Pointer(at).Pointer(at).Pointer(at).Int32(n - 1)}
		if err := errors.Join(d.Fill(s, p, 1, 4*n), m.FunctionLaunch(s, add, l),
			d.Copy(s, driver.Ptr(unsafe.Pointer(&host[0])), p, 4*n, driver.DeviceToHost),
			d.StreamSynchronize(ctx, s)); err != nil {
			t.Fatal(from, err)
		}
		if host[0] != 0x01010101 || slices.ContainsFunc(host[1:], func(x int32) bool { return x != 0x02020202 }) {
			t.Errorf("%s: %x", from, host)
		}
	}
}

// A kept file that isn't a whole image is compiled again: it's what an older version has kept, was cut short, or is
// garbage.
func TestKeptImages(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("left out: the driver compiles nothing")
	}
	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	if err := loadSource(d, sourceText); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, "chorus", "opencl")
	files, _ := filepath.Glob(filepath.Join(folder, "chorus_*"))
	if len(files) != 1 {
		t.Fatalf("kept: %v", files)
	}
	var key kept.Key
	if _, err := hex.Decode(key[:], []byte(strings.TrimPrefix(filepath.Base(files[0]), "chorus_"))); err != nil {
		t.Fatal(err)
	}
	place := kept.Open(folder)
	whole, err := place.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := opencl.ProgramOf(whole)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.IndexByte(string(whole), 0) + 1
	for what, data := range map[string][]byte{"an older version's": old, "cut short": whole[:len(whole)/2],
		"no program": append(slices.Clone(whole[:head]), "{}"...),
		"garbage":    append(slices.Clone(whole[:head]), "garbage"...)} {
		if err := place.Put(key, data); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 2, crash))
		var refused *opencl.CompileError
		if err := loadSource(d, sourceText); !errors.As(err, &refused) {
			t.Errorf("%s: it's not compiled again: %v", what, err)
		}
		if _, err := os.Stat(files[0]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it's still there: %v", what, err)
		}
		if what == "an older version's" {
			continue // which a program may load as a module
		}
		if err := loadSource(d, string(data)); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s, loaded: %v", what, err)
		}
	}
}

// A source that the compiler refuses only with offsets is compiled as it is, in other processes without another try.
func TestRefusalOfOffsets(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("CHORUS_OPENCL_COMPILER", "self")
	d := open(t, opencl.Options{Buffers: true})
	if loadSource(d, addText) != nil {
		t.Skip("left out: the driver compiles nothing")
	}
	folder := filepath.Join(cache, "chorus", "opencl", "chorus_*")
	const both, one = "kernel void bad( {", "kernel void f(global int *p) { int at_p = 1; p[0] = at_p; }"
	for k, c := range []struct {
		load func() error
		kept int
	}{
		{func() error { return nil }, 1}, // of addText
		{func() error {
			var refused *opencl.CompileError
			if err := loadSource(d, both); !errors.As(err, &refused) {
				return errors.Join(errors.New("a source that is wrong"), err)
			}
			return nil
		}, 1},
		{func() error { _, err := d.(driver.Compiler).ModuleCompile(0, []byte(one)); return err }, 2}, // the refusal
		{func() error { return loadSource(d, one) }, 3},
		{func() error {
			t.Setenv("CHORUS_OPENCL_COMPILER", compilerScript(t, 0, crash))
			return loadSource(open(t, opencl.Options{Buffers: true}), one)
		}, 3},
	} {
		if err := c.load(); err != nil {
			t.Errorf("%d: %v", k, err)
		}
		if files, _ := filepath.Glob(folder); len(files) != c.kept {
			t.Errorf("%d: %d files are kept", k, len(files))
		}
	}
}

// A program of which the library doesn't name the kernels isn't left in its memory.
func TestProgramsWithoutNames(t *testing.T) {
	t.Setenv("CHORUS_OPENCL_COMPILER", "none")
	libraries, programs := load(t), 0
	for _, l := range libraries {
		info, source, free := l.ProgramInfo, l.ProgramFromSource, l.ProgramFree
		l.ProgramInfo = func(p abi.Program, what uint32, n uintptr, v unsafe.Pointer, ret *uintptr) abi.Result {
			if what == abi.ProgramKernelNames {
				return abi.OutOfHostMemory
			}
			return info(p, what, n, v, ret)
		}
		l.ProgramFromSource = func(c abi.Context, n uint32, text **byte, size *uintptr, r *abi.Result) abi.Program {
			programs++
			return source(c, n, text, size, r)
		}
		l.ProgramFree = func(p abi.Program) abi.Result {
			programs--
			return free(p)
		}
	}
	d, err := opencl.New(libraries, opencl.Options{Buffers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(driver.Closer).Close()
	if err := loadSource(d, addText); !errors.Is(err, driver.ErrInternal) || programs != 0 {
		t.Errorf("%d programs are left: %v", programs, err)
	}
}
