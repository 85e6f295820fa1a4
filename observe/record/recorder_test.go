package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

var sum = backend.Reduction{Kind: backend.SumKind}

func allReduce(n int) *backend.Op {
	x := tensor.Of(make([]float32, n))
	return &backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: sum}
}

// snapshot dumps all ranks of the process and reads what the only one wrote.
func snapshot(t *testing.T) *observe.Dump {
	t.Helper()
	files, err := record.DumpAll(t.TempDir())
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	d, err := observe.ReadFile(files[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRecorderOff(t *testing.T) {
	r := record.Open(record.Settings{}, "", "world", 0, 1)
	if r != nil {
		t.Fatal("a recorder without entries")
	}
	op := allReduce(1)
	id := r.Begin(op, false)
	r.Start(id, op)
	r.End(id, op, nil)
	r.Failed(backend.ErrInternal)
	r.Late()
	r.Close()
	if r.Split("part", 0, []int{0}) != nil {
		t.Error("a part of nothing")
	}
}

func TestRing(t *testing.T) {
	r := record.Open(record.Settings{Entries: 8}, "job 1", "world", 1, 2)
	defer r.Close()
	for seq := uint64(1); seq <= 20; seq++ {
		op := allReduce(int(seq))
		id := r.Begin(op, false)
		op.Seq, op.Algorithm = seq, "ring"
		r.End(id, op, nil)
	}
	r.Begin(allReduce(21), false)
	d := snapshot(t)
	if n := len(d.Entries); n != 8 {
		t.Fatalf("%d entries, want 8", n)
	}
	for i, e := range d.Entries {
		seq := uint64(14 + i)
		state, status := "completed", "ok"
		if seq == 21 {
			state, status = "started", "pending"
		}
		if e.Seq != seq || e.InSizes[0][0] != int(seq) || e.State != state || e.Chorus.Status != status ||
			e.InDTypes[0] != "Float" || e.Chorus.Reduce != "sum" {
			t.Errorf("entry %d: %+v", i, e)
		}
		if seq != 21 && e.Chorus.Algorithm != "ring" {
			t.Errorf("algorithm %q", e.Chorus.Algorithm)
		}
		if (e.Completed != nil) != (seq == 16) {
			t.Errorf("#%d: completed %v; one in eight is timed", seq, e.Completed)
		}
	}
	if st := d.Chorus.Comms[0]; st.Done != 20 || st.Recorded != 21 || st.Name != "world" || st.Rank != 1 ||
		len(st.Members) != 2 {
		t.Errorf("%+v", st)
	}
}

// TestCallSite looks for the caller of a method of a communicator: the recorder's caller's caller.
func TestCallSite(t *testing.T) {
	r := record.Open(record.Settings{Entries: 8}, "", "world", 0, 1)
	defer r.Close()
	method(r)
	e := snapshot(t).Entries[0]
	if len(e.Frames) == 0 || !strings.HasSuffix(e.Frames[0].Name, ".TestCallSite") ||
		filepath.Base(e.Frames[0].File) != "recorder_test.go" || e.Frames[0].Line == 0 {
		t.Errorf("frames %+v", e.Frames)
	}
}

//go:noinline
func method(r *record.Recorder) { r.Begin(allReduce(1), false) }

// TestConcurrent has operations recorded while dumps are made: no entry may mix two operations.
func TestConcurrent(t *testing.T) {
	r := record.Open(record.Settings{Entries: 16}, "", "world", 0, 1)
	defer r.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			x := tensor.Of(make([]float32, g+1))
			op := &backend.Op{Kind: backend.Send, In: x, Peer: g, Tag: 1000 + g}
			for {
				select {
				case <-stop:
					return
				default:
				}
				r.End(r.Issue(op, true, true), op, nil)
			}
		})
	}
	dir := t.TempDir()
	for range 50 {
		files, err := record.DumpAll(dir)
		if err != nil {
			t.Fatal(err)
		}
		d, err := observe.ReadFile(files[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range d.Entries {
			if g := *e.Chorus.Peer; e.Chorus.Tag != 1000+g || e.InSizes[0][0] != g+1 {
				t.Fatalf("a mixed entry: %+v", e)
			}
		}
	}
	close(stop)
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(dir, ".dump-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "job_rank_0.json")); err != nil {
		t.Error(err)
	}
}

// BenchmarkRecord is what a small synchronous operation pays.
func BenchmarkRecord(b *testing.B) {
	r := record.Open(record.Settings{Entries: 1024}, "", "world", 0, 1)
	defer r.Close()
	op := allReduce(2)
	op.Algorithm = "direct"
	b.ReportAllocs()
	for b.Loop() {
		op.Seq++ // as a backend that launches
		id := r.Begin(op, false)
		r.End(id, op, nil)
	}
}
