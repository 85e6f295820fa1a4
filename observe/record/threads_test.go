package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// TestSites records operations that were called in another language.
func TestSites(t *testing.T) {
	here, there := Site(Frame{Name: "step", File: "train.py", Line: 7}), Site(Frame{Name: "step", File: "train.py",
		Line: 9})
	if here == 0 || here == there || here != Site(Frame{Name: "step", File: "train.py", Line: 7}) {
		t.Fatalf("got %d and %d", here, there)
	}
	r := Open(Settings{Entries: 8}, "job", "world", 0, 1)
	defer r.Close()
	x := tensor.Of(make([]float32, 8))
	op := backend.Op{Kind: backend.AllReduce, In: x, Out: x}
	want := []int{7, 7, 9, 7, 9}
	for i, line := range want {
		op.Seq, op.Site = uint64(i), map[int]uint16{7: here, 9: there}[line]
		if line == 9 && i > 3 { // one that is queued
			r.Issue(&op, true, true)
			continue
		}
		r.Begin(&op, false)
		op.Seq++
		r.Done(&op)
	}
	for i, e := range r.rank.Snapshot("test").Entries {
		if len(e.Frames) != 1 || e.Frames[0].Line != want[i] || e.Frames[0].File != "train.py" {
			t.Errorf("operation %d: %+v, want line %d", i, e.Frames, want[i])
		}
	}
}

const printed = `Current thread 0x00007f0000000001 (most recent call first):
  <no Python frame>

Thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "DIR/pool.py", line 3 in work

Thread 0x00007f0000000003 [main] (most recent call first):
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 733 in __next__
  File "/usr/lib/python3.11/site-packages/fine/__init__.py", line ??? in load
  File "DIR/train.py", line 2 in <module>
  File "<frozen runpy>", line 88 in _run_code
  ...
`

// TestThreads reads what faulthandler prints.
func TestThreads(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	inner := []string{"/usr/lib/python3.11/site-packages/torch", "/usr/lib/python3.11/"}
	all := parseThreads(strings.ReplaceAll(printed, "DIR", dir), 0x7f0000000003, inner)
	if len(all) != 2 || all[0].Main || !all[1].Main || len(all[1].Frames) != 4 {
		t.Fatalf("got %+v", all)
	}
	for i, want := range []Frame{
		{Name: "torch.utils.data.dataloader.__next__",
			File: "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", Line: 733, Inner: true},
		{Name: "load", File: "/usr/lib/python3.11/site-packages/fine/__init__.py"},
		{Name: "<module>", File: "train.py", Line: 2},
		{Name: "runpy._run_code", File: "<frozen runpy>", Line: 88, Inner: true},
	} {
		if got := all[1].Frames[i]; got != want {
			t.Errorf("frame %d: %+v, want %+v", i, got, want)
		}
	}
	if does, at := InProgram(all, nil); does != "torch.utils.data.dataloader.__next__ in load" ||
		at != "fine/__init__.py:0" {
		t.Errorf("got %q at %q", does, at)
	}
	last := &Entry{Frames: []Frame{{Name: "Pool.work", File: "pool.py", Line: 3}}}
	if does, at := InProgram(all, last); does != "threading.wait in work" || at != "pool.py:3" {
		t.Errorf("got %q at %q, of the thread that has called the last operation", does, at)
	}
}

func TestCalls(t *testing.T) {
	for text, want := range map[string]string{
		"time.sleep(600)":                  "time.sleep",
		"x = load(path) if path else None": "load",
		"return f(g(x))":                   "`return f(g(x))`",
		"while (n := n + 1): pass":         "`while (n := n + 1): pass`",
		"":                                 "",
		"with lock:":                       "`with lock:`",
		"x = [a * b for a in range(1000000) for b in zip(range(30), xs)]": "`x = [a * b for a in range(1000000) for b in zip(range(30), x...`",
	} {
		if got := calls(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestSourceLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.py")
	if err := os.WriteFile(path, []byte("a\n  b(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sourceLine(path, 2); got != "b(1)" {
		t.Errorf("got %q", got)
	}
	for _, none := range []string{sourceLine(path, 3), sourceLine(filepath.Dir(path), 1), sourceLine(path+"c", 1)} {
		if none != "" {
			t.Errorf("got %q", none)
		}
	}
}
