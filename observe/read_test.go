package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
)

// TestOddFiles reads a directory in which other things have the names of dumps. None of them is waited for.
func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	left(t, dir, "train", 0, 0, 5, "a", 100, 110, true)
	odd := map[string]struct {
		err  error
		says string
	}{
		"train_rank_1.json": {syscall.Mkfifo(path("train_rank_1.json"), 0o600), "it's a FIFO"},
		"train_rank_2.json": {os.Symlink("/dev/zero", path("train_rank_2.json")), "it's a device"},
		"train_rank_3.json": {errors.Join(os.WriteFile(path("train_rank_3.json"), nil, 0o600),
			os.Truncate(path("train_rank_3.json"), 40<<30)), "it's no dump: its first line has more than"},
		"train_rank_4.json":    {os.Mkdir(path("train_rank_4.json"), 0o700), "it's a directory"},
		"x\x1b[2J_rank_1.json": {os.WriteFile(path("x\x1b[2J_rank_1.json"), []byte("{"), 0o600), `x\x1b[2J_rank_1.json: `},
	}
	dumps, err := ReadDir(dir, 64)
	if err == nil || len(dumps) != 1 || strings.ContainsRune(err.Error(), 0x1b) {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	for name, o := range odd {
		if o.err != nil {
			t.Fatalf("%s: %v", name, o.err)
		}
		if !strings.Contains(err.Error(), o.says) {
			t.Errorf("%s: %v, want %q", name, err, o.says)
		}
	}
	if _, err := ReadDir(dir, 0); err == nil || !strings.Contains(err.Error(), "it has more than") {
		t.Error(err)
	}
}

// TestLongFile reads the last operations of a dump that is too long to be read whole.
func TestLongFile(t *testing.T) {
	dir := t.TempDir()
	left(t, dir, "train", 0, 0, 2, "a", 100, 110, true)
	path := filepath.Join(dir, "train_rank_0.json")
	whole, err := ReadFile(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := whole.Entries[0]
	head := *whole
	head.Entries = []Entry{}
	line, err := json.Marshal(&head)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.NewBuffer(bytes.TrimSuffix(line, []byte(record.EndMark)))
	e.Name = strings.Repeat("x", 1<<20)
	for i := range 70 {
		e.Seq = uint64(i)
		line, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
		text.Write(line)
	}
	text.WriteString("\n" + record.EndMark + "\n")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := ReadFile(path, 8)
	if err != nil || len(d.Entries) != 8 || d.Entries[7].Seq != 69 || d.Entries[0].Seq != 62 {
		t.Errorf("%v", err)
	}
}

// hostile is text that a program may have given as a name.
const hostile = "x\x1b[2J\r\n1. missing: rank 7\t\u202e\x00"

// noControl fails if a text of lines has anything that moves a terminal's cursor but the lines' ends, or more lines
// than it should.
func noControl(t *testing.T, text string, lines int) {
	t.Helper()
	if n := strings.Count(text, "\n"); n != lines {
		t.Errorf("%d lines, not %d:\n%q", n, lines, text)
	}
	if line := strings.ReplaceAll(text, "\n", ""); plain.Line(line) != line {
		t.Errorf("%q", text)
	}
}

// TestHostileNames prints what a rank has made up.
func TestHostileNames(t *testing.T) {
	l := &Live{Job: hostile, Rank: 0, Size: 2, Where: &Party{Ranks: []int{0}, Does: hostile, At: hostile, After: hostile}}
	l.Comms = []LiveComm{{Name: hostile, Members: []int{0, 1}, Ops: 3, Seq: 2, Op: hostile, At: hostile},
		{Name: hostile, Index: 1, Members: []int{0, 1}, Ops: 3, Cause: hostile}}
	other := *l
	other.Rank, other.Where = 1, &Party{Ranks: []int{1}, Does: hostile, At: hostile, After: hostile}
	other.Comms = []LiveComm{{Name: hostile, Rank: 1, Members: []int{0, 1}, Ops: 1, Last: 1}}
	noControl(t, NewTop(nil, []Answer{{Live: l}, {Live: &other}}).String(), 3+3+1+2)

	e := Entry{InSizes: [][]int{{1}}, OutSizes: [][]int{{1}}, Seq: 1, Frames: []Frame{{Name: hostile, File: hostile}},
		Chorus: Detail{Op: hostile, DType: hostile, Reduce: hostile, Status: record.Pending.String()}}
	now := int64(1)
	e.Started = &now
	d := &Dump{Chorus: Header{Job: hostile, Size: 2, Host: hostile, Comms: []CommState{{Name: hostile,
		Members: []int{0, 1}}}}, Entries: []Entry{e}}
	away := &Dump{Chorus: Header{Job: hostile, Rank: 1, Size: 2, Raised: &record.Raised{What: hostile,
		At: Frame{Name: hostile, File: hostile}},
		Comms: []CommState{{Name: hostile, Rank: 1, Members: []int{0, 1}, Refused: hostile}}}}
	r := Explain([]*Dump{d, away})
	if len(r.Findings) != 1 || !slices.Equal(r.Findings[0].Ranks, []int{1}) {
		t.Fatalf("%+v", r.Findings)
	}
	r.Findings[0].Detail = hostile
	noControl(t, r.String(), 2+4)
	noControl(t, Life{d}.String()+"\n", 1)
}
