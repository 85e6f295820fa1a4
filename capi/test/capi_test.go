package test

import (
	"debug/elf"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// TestScenarios runs the harness: each scenario's own asserts are the test.
func TestScenarios(t *testing.T) {
	cycles := "10000"
	if raceEnabled || testing.Short() || testutil.Short() {
		cycles = "1000"
	}
	for _, s := range []struct {
		name  string
		sizes []int
	}{
		{"operations", []int{1, 2, 3, 4}}, {"errors", []int{2, 3}}, {"windows", []int{1, 2, 3}}, {"memory", []int{2}},
		{"devices", []int{1, 2, 3}}, {"kernels", []int{1}}, {"regroup", []int{3, 4}},
		{"forked", []int{2}}, {"callbacks", []int{1}}, {"hosts", []int{1}}, {"interrupts", []int{2}}, {"hooked", []int{2}},
		{"queued", []int{2}}, {"threads", []int{2}}, {"cycles", []int{2}},
	} {
		for i, size := range s.sizes {
			if i > 0 && i < len(s.sizes)-1 && testutil.Short() {
				continue // the smallest world and the largest do
			}
			t.Run(fmt.Sprintf("%s/%d", s.name, size), func(t *testing.T) {
				scenario(t, harness.build(t), s.name, size, "CYCLES="+cycles)
			})
		}
	}
}

// TestMonitor wants Go's monitor, and no other thread, to have slack in its timers, unless that's switched off.
func TestMonitor(t *testing.T) {
	if raceEnabled {
		t.Skip("left out: under the race detector the library is linked into the program, whose threads are its own")
	}
	scenario(t, harness.build(t), "monitored", 1, "CHORUS_MONITOR_SLACK=0")
	for _, out := range scenario(t, harness.build(t), "monitored", 1) {
		if strings.Contains(out, "left out") {
			t.Skip(out)
		}
	}
}

// TestPanic wants one stack for the people, and a message for the program.
func TestPanic(t *testing.T) {
	testutil.SkipIfShort(t)
	for r, out := range scenario(t, panicking.build(t), "panicked", 2) {
		if n := strings.Count(out, "chorus: panic: asked to"); n != 1 {
			t.Errorf("rank %d says %d times that it panicked:\n%s", r, n, out)
		}
	}
}

// TestAddressSanitizer runs the scenarios with the most of C in them.
func TestAddressSanitizer(t *testing.T) {
	testutil.SkipIfShort(t)
	cc := compiler(t)
	if raceEnabled {
		t.Skip("left out: the race detector and the address sanitizer don't go together")
	}
	out, err := exec.Command(cc, "-print-file-name=libasan.so").Output()
	if path := strings.TrimSpace(string(out)); err != nil || !filepath.IsAbs(path) {
		t.Skip("left out: the compiler has no libasan")
	}
	path := sanitized.build(t)
	for _, name := range []string{"operations", "errors", "windows", "callbacks", "hooked", "panicked", "devices"} {
		t.Run(name, func(t *testing.T) {
			size := 2
			if name == "callbacks" {
				size = 1
			}
			// Go's memory isn't scanned, so that what only Go refers to would look lost.
			scenario(t, path, name, size, "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0")
		})
	}
}

var declared = regexp.MustCompile(`(?m)^CHORUS_API .*?\b(chorus_\w+)\(`)

// TestSymbols compares what the header declares with what the library exports.
func TestSymbols(t *testing.T) {
	if raceEnabled {
		t.Skip("left out: under the race detector there is no shared library")
	}
	path := example.build(t)
	header, err := os.ReadFile(filepath.Join(testutil.ModuleRoot(t), "capi", "chorus.h"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range declared.FindAllStringSubmatch(string(header), -1) {
		want = append(want, m[1])
	}
	lib, err := elf.Open(filepath.Join(filepath.Dir(path), "libchorus.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS {
			got = append(got, s.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 40 {
		t.Errorf("exported: %v\ndeclared: %v", got, want)
	}
}

// TestHeaderCompiles gives the header to strict compilers.
func TestHeaderCompiles(t *testing.T) {
	cc := compiler(t)
	for _, flags := range [][]string{{"-std=c99", "-x", "c"}, {"-std=c11", "-x", "c"}} {
		run(t, testutil.ModuleRoot(t), cc, append(append([]string{"-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"},
			flags...), "capi/chorus.h")...)
	}
}

// TestExample runs the program of the documentation, with and without its mistake.
func TestExample(t *testing.T) {
	path := example.build(t)
	launch := func(args ...string) func(r int) *exec.Cmd {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		return func(r int) *exec.Cmd {
			cmd := exec.Command(path, args...)
			cmd.Env = append(os.Environ(), fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r), "WORLD_SIZE=2",
				"LOCAL_WORLD_SIZE=2",
				"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port))
			return cmd
		}
	}
	for r, out := range ranks(t, 2, launch()) {
		if want := fmt.Sprintf("rank %d of 2: the sum of all ranks is 3\n", r); out != want {
			t.Errorf("rank %d says %q, want %q", r, out, want)
		}
	}
	command := launch("wrong")
	for r, out := range ranks(t, 2, func(r int) *exec.Cmd {
		cmd := command(r)
		return wrapped(cmd, 1)
	}) {
		if !strings.Contains(out,
			"rank 0 calls all_reduce(float32[524288], sum), rank 1 calls all_reduce(float32[1048576], sum)") {
			t.Errorf("rank %d says %q", r, out)
		}
	}
}

// wrapped makes a command succeed if, and only if, it exits with a status.
func wrapped(cmd *exec.Cmd, status int) *exec.Cmd {
	args := append([]string{"-c", fmt.Sprintf(`"$0" "$@"; [ $? = %d ]`, status), cmd.Path}, cmd.Args[1:]...)
	w := exec.Command("sh", args...)
	w.Env = cmd.Env
	return w
}

var measured = regexp.MustCompile(`(?m)^(.*?) +(\d+) ns`)

// BenchmarkCalls reports what calls cost from C, with two ranks.
func BenchmarkCalls(b *testing.B) {
	path := harness.build(b)
	for b.Loop() {
		for _, m := range measured.FindAllStringSubmatch(scenario(b, path, "bench", 2)[0], -1) {
			var ns float64
			fmt.Sscan(m[2], &ns)
			b.ReportMetric(ns, strings.ReplaceAll(m[1], " ", "_")+"-ns")
		}
	}
}
