// Package test holds the C ABI to its header: it builds libchorus.so, and C
// programs that use it. Without a C compiler it's skipped.
package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
)

var scratch string // removed when the tests are over

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "capi"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// compiler returns the C compiler, and skips the test where there's none.
func compiler(t testing.TB) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("left out: no C compiler (gcc)")
	}
	return cc
}

// run runs a command and wants it to succeed.
func run(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// A library is built once, with flags of go build; programs that use it are beside it.
type library struct {
	name  string
	flags []string
	once  sync.Once
	dir   string
}

var (
	plain = library{name: "plain"}
	debug = library{name: "debug", flags: []string{"-tags", "chorus_debug"}} // with chorus_debug_panic
)

func (l *library) build(t testing.TB) string {
	t.Helper()
	compiler(t)
	l.once.Do(func() {
		dir := filepath.Join(scratch, l.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root := testutil.ModuleRoot(t)
		if raceEnabled { // the race detector wants Go's data at low addresses, where no shared library is mapped
			run(t, root, "go", append(append([]string{"build", "-race", "-buildmode=c-archive", "-o", filepath.Join(dir,
				"libchorus.a")}, l.flags...), "./capi/libchorus")...)
		} else {
			run(t, root, "sh", append([]string{"capi/build.sh", filepath.Join(dir, "libchorus.so")}, l.flags...)...)
		}
		l.dir = dir
	})
	if l.dir == "" {
		t.Fatal("the library could not be built, see above")
	}
	return l.dir
}

// A program is a C program beside its library.
type program struct {
	name    string
	library *library
	flags   []string // of the compiler
	sources string
	once    sync.Once
	path    string
}

var (
	harness   = program{name: "harness", library: &plain, sources: "capi/test/harness/*.c"}
	panicking = program{name: "panicking", library: &debug, sources: "capi/test/harness/*.c"}
	sanitized = program{name: "sanitized", library: &debug, flags: []string{"-fsanitize=address"},
		sources: "capi/test/harness/*.c"}
	example = program{name: "example", library: &plain, sources: "capi/example/allreduce.c"}
)

// build builds the program and its library, and returns the program's path.
func (p *program) build(t testing.TB) string {
	t.Helper()
	dir := p.library.build(t)
	p.once.Do(func() {
		root, path := testutil.ModuleRoot(t), filepath.Join(dir, p.name)
		files, err := filepath.Glob(filepath.Join(root, p.sources))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", p.sources, err)
		}
		args := append([]string{"-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Icapi", "-o", path}, p.flags...)
		if raceEnabled {
			args = append(args, "-no-pie")
		}
		args = append(args, files...)
		run(t, root, compiler(t), append(args, "-L"+dir, "-lchorus", "-lpthread", "-Wl,-rpath,$ORIGIN")...)
		p.path = path
	})
	if p.path == "" {
		t.Fatal("it could not be built, see above")
	}
	return p.path
}

// ranks runs a program as the ranks of a world, each with its arguments, and returns what they printed.
func ranks(t testing.TB, size int, command func(rank int) *exec.Cmd) []string {
	t.Helper()
	out := make([]bytes.Buffer, size)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		cmd := command(r)
		cmd.Stdout, cmd.Stderr = &out[r], &out[r]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() }).Stop()
			errs[r] = cmd.Wait()
		})
	}
	wg.Wait()
	text := make([]string, size)
	for r := range size {
		text[r] = out[r].String()
		if errs[r] != nil {
			t.Errorf("rank %d of %d: %v\n%s", r, size, errs[r], text[r])
		}
	}
	return text
}

// scenario runs one of the harness's scenarios.
func scenario(t testing.TB, path, name string, size int, env ...string) []string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	return ranks(t, size, func(r int) *exec.Cmd {
		cmd := exec.Command(path, name, fmt.Sprint(r), fmt.Sprint(size), "file://"+store)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	})
}
