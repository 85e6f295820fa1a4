package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// generate writes the dumps of a job in which one rank hangs, as real ranks do, and returns their directory.
func generate(tb testing.TB, size, culprit, operations int) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "[1]") // no pattern
	x := tensor.Of(make([]float32, 8))
	for rank := range size {
		r := record.Open(record.Settings{Entries: 1024, Dir: dir}, "big", "world", rank, size)
		op := &backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind},
			Algorithm: "ring"}
		for seq := 1; seq <= operations; seq++ {
			id := r.Begin(op, false)
			op.Seq = uint64(seq)
			r.End(id, op, nil)
		}
		if rank != culprit {
			r.Begin(op, false)
		}
		r.Failed(&backend.TimeoutError{Where: backend.Where{Comm: "world", Op: "all_reduce", Seq: uint64(operations + 1),
			Reporter: rank}, Attendance: backend.Attendance{Elapsed: time.Minute, Missing: []int{culprit}}})
		r.Close()
	}
	return dir
}

func TestManyRanks(t *testing.T) {
	dir := generate(t, 50, 17, 2000)
	dumps, err := ReadDir(dir, 64)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(dumps[0].Entries); n != 64 {
		t.Errorf("%d entries, asked for 64", n)
	}
	r := Explain(dumps)
	if len(r.Findings) != 1 || r.Findings[0].Kind != KindMissing || !slices.Equal(r.Findings[0].Ranks, []int{17}) ||
		r.Findings[0].Seq != 2001 {
		t.Errorf("%v", r)
	}
	if err := os.Remove(fmt.Sprintf("%s/big_rank_17.json", dir)); err != nil {
		t.Fatal(err)
	}
	if dumps, err = ReadDir(dir, 64); err != nil {
		t.Fatal(err)
	}
	r = Explain(dumps)
	if len(r.Findings) != 1 || r.Findings[0].Kind != KindNoDump || !slices.Equal(r.Findings[0].Ranks, []int{17}) ||
		!slices.Equal(r.Missing, []int{17}) {
		t.Errorf("%v", r)
	}
	if err := os.Truncate(fmt.Sprintf("%s/big_rank_3.json", dir), 1000); err != nil {
		t.Fatal(err)
	}
	if dumps, err = ReadDir(dir, 64); err == nil || !strings.Contains(err.Error(), "big_rank_3.json") || len(dumps) != 48 {
		t.Errorf("%d dumps, and %v; one can't be read", len(dumps), err)
	}
}

// BenchmarkExplain is what `chorus explain` does with 1,000 dumps of 1,024 operations.
func BenchmarkExplain(b *testing.B) {
	dir := generate(b, 1000, 17, 2000)
	for b.Loop() {
		dumps, err := ReadDir(dir, 256)
		if err != nil {
			b.Fatal(err)
		}
		if r := Explain(dumps); len(r.Findings) != 1 || r.Findings[0].Ranks[0] != 17 {
			b.Fatal(r)
		}
	}
}

func FuzzParse(f *testing.F) {
	x := tensor.Of(make([]float32, 8))
	r := record.Open(record.Settings{Entries: 8}, "fuzz", "world", 0, 2)
	for _, kind := range []backend.Kind{backend.AllReduce, backend.Recv, backend.Send, backend.Broadcast} {
		op := &backend.Op{Kind: kind, In: x, Out: x, Peer: 1, Seq: 1}
		id := r.Begin(op, false)
		if kind == backend.AllReduce {
			r.End(id, op, nil)
		}
	}
	r.BeginSpecial(record.Split, 2)
	r.Failed(&backend.PeerLostError{Peer: 1})
	d := r.Rank().Snapshot("request")
	r.Close()
	d.Chorus.Stacks = "goroutine 1 [select, 3 minutes]:\nmain.train(...)\n\t/src/main.go:42 +0x1c\nmain.main()\n\t/src/main.go:7 +0x2\n"
	file, err := os.Create(filepath.Join(f.TempDir(), "dump"))
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	if err := d.Write(file); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, 2)
	f.Add(data, 0)
	f.Add([]byte(`{"chorus":{"format":1,"size":1},"entries":[`+"\n]}"), 1)
	f.Add([]byte(`{"chorus":{"format":1,"size":4611686018427387904}}`), 0)
	for _, entry := range []string{ // operations without what they must have
		`{"input_sizes":[[1]],"output_sizes":[[1]],"chorus":{"op":"send","status":"pending"}}`,
		`{"input_sizes":[[]],"output_sizes":[[]],"is_p2p":true,"chorus":{"op":"send","dtype":"float32","status":"ok","peer":0}}`,
	} {
		f.Add([]byte(`{"chorus":{"format":1,"size":2,"comms":[{"name":"w","rank":0,"members":[0,1],"failure":{"kind":"aborted","peer":0}}]},"entries":[`+"\n"+entry+"\n]}"), 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, last int) {
		d, err := Parse(data, last)
		if err == nil && d.Chorus.Size > maxRanks {
			t.Fatalf("%d ranks", d.Chorus.Size)
		}
		if err != nil || d.Chorus.Size > 1000 { // it would take its time
			return
		}
		lives, err := livesOf([]*Dump{d})
		if err != nil || len(lives) != 1 {
			t.Fatalf("%v, %v", lives, err)
		}
		for _, text := range []string{Explain(lives[0]).String(), TopOf(lives[0]).String(), lives[0].String()} {
			if line := strings.ReplaceAll(text, "\n", ""); plain.Line(line) != line {
				t.Errorf("%q", text)
			}
		}
		if err := WriteTrace(&strings.Builder{}, []*Dump{d}); err != nil {
			t.Fatal(err)
		}
	})
}
