//go:build linux && (amd64 || arm64)

package dl

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// The C library's own mathematics is a library that every Linux with glibc or musl has.
var libm = Source{Name: "libm", Candidates: []string{"/nowhere/libm-*.so", "libno-such-thing.so.6", "libm.so.6",
	"libm.so"}}

func TestResolve(t *testing.T) {
	l, err := libm.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	var f struct {
		Cos   func(float64) float64         `dl:"cos"`
		Frexp func(float64, *int32) float64 `dl:"no_frexp|frexp"`
		Abs   Func                          `dl:"ilogbf" cap:"integers"`
		None  Func                          `dl:"no_such_function" cap:"magic" since:"9.9"`
		Half  Func                          `dl:"sin" cap:"magic"`
		Other string
	}
	f.Other = "kept"
	caps, err := l.Resolve(&f)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Cos(math.Pi); got != -1 {
		t.Errorf("cos(pi) = %v", got)
	}
	var exponent int32
	if m := f.Frexp(24, &exponent); m != 0.75 || exponent != 5 {
		t.Errorf("frexp(24) = %v, %d", m, exponent)
	}
	if f.None != 0 || f.Half == 0 || f.Abs == 0 || f.Other != "kept" {
		t.Errorf("table: %+v", f)
	}
	if !caps.Has("integers") || caps.Has("magic") || caps.Need("integers") != nil {
		t.Error("capabilities are wrong")
	}
	if has, lacks := caps.List(); strings.Join(has, " ") != "integers" || strings.Join(lacks, " ") != "magic" {
		t.Errorf("has %v, lacks %v", has, lacks)
	}
	var lacking *CapabilityError
	if err := caps.Need("magic"); !errors.As(err, &lacking) ||
		!strings.HasSuffix(err.Error(), "has no magic: it lacks no_such_function, which came with libm 9.9") {
		t.Errorf("Need = %v", err)
	}
	if p := l.Path(); !filepath.IsAbs(p) || !strings.Contains(p, "libm") {
		t.Errorf("path %q", p)
	}
}

// A table that a stand-in has filled says the same of itself as one of a library.
func TestSupplied(t *testing.T) {
	table := struct {
		Cos  func(float64) float64 `dl:"cos"`
		None Func                  `dl:"no_such_function" cap:"magic" since:"9.9"`
	}{Cos: math.Cos}
	caps, err := Supplied("a stand-in", "1.5", "in a test", &table)
	if err != nil {
		t.Fatal(err)
	}
	const want = "a stand-in 1.5 (in a test) has no magic: it lacks no_such_function, which came with a stand-in 9.9"
	if err := caps.Need("magic"); err == nil || err.Error() != want {
		t.Errorf("Need = %v", err)
	}
	table.Cos = nil
	if _, err := Supplied("a stand-in", "1.5", "in a test", &table); err == nil ||
		err.Error() != "a stand-in 1.5 (in a test) lacks cos" {
		t.Errorf("a table without a function that's needed: %v", err)
	}
}

func TestFunc(t *testing.T) {
	l, err := Source{Name: "libc", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	var f struct {
		Getpid Func                            `dl:"getpid"`
		Strlen Func                            `dl:"strlen"`
		Memcmp func(a, b []byte, n uint) int32 `dl:"memcmp"`
	}
	if _, err := l.Resolve(&f); err != nil {
		t.Fatal(err)
	}
	if got := f.Getpid.Call(); int(got) != os.Getpid() {
		t.Errorf("getpid() = %d, want %d", got, os.Getpid())
	}
	text := []byte("seven b\x00")
	if got := f.Strlen.Call(uintptr(unsafe.Pointer(&text[0]))); got != 7 {
		t.Errorf("strlen = %d", got)
	}
	runtime.KeepAlive(text)
	if f.Memcmp([]byte("ab"), []byte("ab"), 2) != 0 || f.Memcmp([]byte("ab"), []byte("ac"), 2) == 0 {
		t.Error("memcmp is wrong")
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic at the call of a function that there isn't")
		}
	}()
	Func(0).Call()
}

// lengthOf is a type of functions that are made by Direct.
type lengthOf = func(text *byte) uint64

func init() {
	Direct(func(f Func) lengthOf {
		return func(text *byte) uint64 {
			n := f.Call(uintptr(unsafe.Pointer(text)))
			runtime.KeepAlive(text)
			return uint64(n)
		}
	})
}

// Functions of a type that is made directly do what others do, and allocate nothing.
func TestDirect(t *testing.T) {
	l, err := Source{Name: "libc", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	var f struct {
		Direct    lengthOf                `dl:"strlen"`
		Reflected func(text *byte) uint32 `dl:"strlen"`
		None      lengthOf                `dl:"no_such_function" cap:"magic"`
	}
	if _, err := l.Resolve(&f); err != nil || f.None != nil {
		t.Fatal(err, f.None != nil)
	}
	text := []byte("seven b\x00")
	if n, m := f.Direct(&text[0]), f.Reflected(&text[0]); n != 7 || m != 7 {
		t.Errorf("strlen = %d and %d", n, m)
	}
	if n := testing.AllocsPerRun(100, func() { f.Direct(&text[0]) }); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

// A thread that Go knows nothing of calls back, as a GPU's library does.
func TestCallback(t *testing.T) {
	l, err := Source{Name: "libc", Candidates: []string{"libpthread.so.0", "libc.so.6", "libc.so"}}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	var f struct {
		Create func(thread *uintptr, attr uintptr, start Func, arg uintptr) int32 `dl:"pthread_create"`
		Join   func(thread, result uintptr) int32                                 `dl:"pthread_join"`
	}
	if _, err := l.Resolve(&f); err != nil {
		t.Skip("left out: ", err)
	}
	got := make(chan uintptr, 100)
	call := Callback(func(arg uintptr) { runtime.GC(); got <- arg })
	for i := range uintptr(100) {
		thread := new(uintptr)
		if r := f.Create(thread, 0, call, i); r != 0 {
			t.Fatal("pthread_create: ", r)
		}
		if r := f.Join(*thread, 0); r != 0 {
			t.Fatal("pthread_join: ", r)
		}
		if v := <-got; v != i {
			t.Fatalf("got %d, want %d", v, i)
		}
	}
}

func TestMissing(t *testing.T) {
	_, err := Source{Name: "libmagic", Candidates: []string{"libmagic-99.so", "/nowhere/*.so"}}.Open()
	var none *NotFoundError
	if !errors.As(err, &none) || len(none.Tried) != 2 || !strings.Contains(err.Error(),
		"libmagic is not on this machine") {
		t.Errorf("Open = %v", err)
	}
	l, err := libm.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	l.ask = func(*Library) (string, error) { return "1.2.3", nil }
	var f struct {
		A Func `dl:"no_such_a"`
		B Func `dl:"cos"`
		C Func `dl:"no_such_c|no_such_d"`
	}
	var lacks *SymbolError
	if _, err = l.Resolve(&f); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "libm 1.2.3 (") ||
		!strings.HasSuffix(err.Error(), "lacks no_such_a, no_such_c|no_such_d") {
		t.Errorf("Resolve = %v", err)
	}
}

// A file that is no library, and one that is empty, are errors that say what they are.
func TestNoLibrary(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty.so": "", "text.so": "not a library"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Source{Name: "it", Candidates: []string{path}}).Open(); err == nil || !strings.Contains(err.Error(),
			name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrongTables(t *testing.T) {
	l, err := libm.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	for name, table := range map[string]any{
		"no pointer": struct{}{},
		"no function": &struct {
			F int `dl:"cos"`
		}{},
		"unexported": &struct {
			f Func `dl:"cos"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			l.Resolve(table)
		}()
	}
}

func BenchmarkFunc(b *testing.B) {
	l, err := Source{Name: "libc", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		b.Skip(err)
	}
	f, _ := l.Symbol("getpid")
	b.ReportAllocs()
	for b.Loop() {
		Func(f).Call()
	}
}

// A library that the process has loaded is taken before a file that comes first among the candidates.
func TestLoadedFirst(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	build := func(file, soname string, value int) string {
		path := filepath.Join(dir, file)
		source := filepath.Join(dir, "dup.c")
		text := fmt.Sprintf("int chorus_dup(void) { return %d; }\n", value)
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,"+soname, "-o", path, source).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return path
	}
	other := build("libchorusdup.so", "libchorusdup.so.5", 5)
	if _, err := (Source{Candidates: []string{build("inside.so", "libchorusdup.so.6", 6)}}).Open(); err != nil {
		t.Fatal(err)
	}
	l, err := Source{Candidates: []string{other, "libchorusdup.so.6"}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	f, _ := l.Symbol("chorus_dup")
	if got := Func(f).Call(); got != 6 {
		t.Errorf("it opened the library of value %d, and not the one that is loaded", got)
	}
	all, err := Source{Candidates: []string{other, "libchorusdup.so.6", "/nowhere/*.so", other}}.OpenAll()
	if err != nil || len(all) != 2 {
		t.Fatalf("of two libraries it opened %v, %v", all, err)
	}
	for i, want := range []uintptr{6, 5} {
		f, _ := all[i].Symbol("chorus_dup")
		if got := Func(f).Call(); got != want {
			t.Errorf("library %d of all has value %d, want %d", i, got, want)
		}
	}
}

// An error has the text of its own call, though the dynamic linker keeps texts by thread and goroutines move.
func TestErrorsOfManyAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			place := fmt.Sprintf("/nonesuch/lib%d.so", g)
			for range 300 {
				if _, err := (Source{Name: "a library", Candidates: []string{place}}).Open(); err == nil ||
					!strings.Contains(err.Error(), place) {
					t.Errorf("%s: %v", place, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
