package docs

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// callFiles returns the columns of the table of calls in architecture.md: by its name, the number of each file.
func callFiles(t *testing.T) map[string]map[string]int {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "architecture.md"), "\n### Calls in comm\n")
	text, _, _ = strings.Cut(text, "\n### ")
	names := []string{"host", "stream", "library"}
	columns := map[string]map[string]int{}
	for _, name := range names {
		columns[name] = map[string]int{}
	}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 {
			continue
		}
		for _, m := range fileName.FindAllStringSubmatch(cells[1], -1) {
			for i, name := range names {
				n, err := strconv.Atoi(strings.TrimSpace(cells[2+i]))
				executor := strings.TrimSuffix(m[1], ".go") // of which two are in one row
				if err == nil && (executor == name || !slices.Contains(names, executor)) {
					columns[name][m[1]] = n
				}
			}
		}
	}
	return columns
}

// stacks collects the files of package comm from the stacks of the code that a program passes to an operation: its
// context, and hooks.
type stacks struct {
	context.Context
	mu   sync.Mutex
	seen [][]string // the outermost file first
}

func (s *stacks) Err() error        { s.note(); return s.Context.Err() }
func (s *stacks) Value(key any) any { s.note(); return s.Context.Value(key) }

func (s *stacks) note() {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var files []string
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, module+"/comm.") {
			files = append(files, filepath.Base(f.File))
		}
	}
	slices.Reverse(files)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, files)
}

// TestCallsInComm runs an all-reduce by each executor, and compares the files on its stacks with the table in
// architecture.md.
func TestCallsInComm(t *testing.T) {
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	library, err := nccltest.New(nccltest.Options{Driver: rt.Driver(), Version: nccltest.Levels[len(nccltest.Levels)-1]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nccl.Supply("NCCL", t.Name(), library.Table(), "accinte"); err != nil {
		t.Fatal(err)
	}
	columns := callFiles(t)
	for name, opts := range map[string][]comm.NewOption{
		"host":   nil,
		"stream": {comm.WithDevice("accinte:0")},
		"library": {comm.WithDevice("accinte:0"), comm.WithBackend("nccl"),
			comm.WithHints(map[string]string{"library": t.Name()})},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c, err := comm.New(ctx, append(opts, comm.WithRank(0, 1))...)
		if err != nil {
			t.Fatal(err)
		}
		x := tensor.Must(c.Zeros(dtype.Float32, 2))
		s := &stacks{Context: ctx}
		done := make(chan struct{})
		c.RegisterPreHook(func(comm.OpInfo) error { s.note(); return nil })
		c.RegisterCompletionHook(func(comm.OpInfo, error) { s.note(); close(done) })
		if err := c.AllReduce(s, x, comm.Sum); err != nil {
			t.Fatal(name, err)
		}
		<-done
		entered := map[string]bool{}
		for _, files := range s.seen {
			last := 0
			for _, file := range files {
				n, listed := columns[name][file]
				if !listed && file != "hooks.go" && file != "panics.go" {
					t.Errorf("%s: the table doesn't have %s, of the stack %v", name, file, files)
				}
				if !entered[file] && listed && n < last {
					t.Errorf("%s: %s comes before what is in front of it in the stack %v", name, file, files)
				}
				entered[file], last = true, max(last, n)
			}
		}
		for file := range columns[name] { // but for those that call nothing of the program's
			if !entered[file] && !slices.Contains([]string{"lane.go", "staged.go", "stream_inline.go"}, file) {
				t.Errorf("%s: no call enters %s", name, file)
			}
		}
		if err := c.Finalize(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
