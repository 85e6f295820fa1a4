package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
)

// left writes the dump of a rank that waits in a barrier, or does nothing, as a process left it that lived from one
// second to another.
func left(t *testing.T, dir, job string, attempt, rank, size int, host string, from, to int64, waits bool) {
	t.Helper()
	r := record.Open(record.Settings{Entries: 8}, job, "world", rank, size)
	if waits {
		r.Begin(&backend.Op{Kind: backend.Barrier}, false)
	}
	d := r.Rank().Snapshot("failure")
	name := record.FileName(job, rank)
	r.Close()
	h := &d.Chorus
	h.Attempt, h.Host, h.Started, h.Time, h.Pid = attempt, host, from*1e9, to*1e9, int(from)
	text, err := json.Marshal(d)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+record.DumpSuffix), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLives reads directories with what several lives of jobs have left: the last one is explained by its own dumps
// alone, and so is each of the others.
func TestLives(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(dir string)
		want  []string // job, attempt and ranks of each life
		blame []int    // in the last one
	}{
		// Rank 1 hung in the first life; in the second it's rank 0 that was killed, and left nothing new.
		"same name": {func(dir string) {
			left(t, dir, "none", 0, 0, 3, "a", 100, 110, true)
			left(t, dir, "none", 0, 1, 3, "a", 100, 110, false)
			left(t, dir, "none", 0, 1, 3, "a", 120, 130, true)
			left(t, dir, "none", 0, 2, 3, "a", 121, 130, true)
		}, []string{"none 0 [1 2]", "none 0 [0]"}, []int{0}},
		"other names and sizes": {func(dir string) {
			left(t, dir, "first", 0, 0, 2, "a", 100, 110, true)
			left(t, dir, "second", 0, 0, 4, "a", 120, 130, true)
			left(t, dir, "second", 0, 1, 2, "a", 140, 150, false)
		}, []string{"second 0 [1]", "second 0 [0]", "first 0 [0]"}, nil},
		"attempts": {func(dir string) {
			left(t, dir, "none", 0, 0, 2, "a", 100, 110, true)
			left(t, dir, "none", 1, 1, 2, "a", 100, 130, true)
		}, []string{"none 1 [1]", "none 0 [0]"}, []int{0}},
		"clocks of hosts that differ": {func(dir string) {
			left(t, dir, "none", 0, 0, 2, "a", 100, 110, true)
			left(t, dir, "none", 0, 1, 2, "b", 130, 140, true)
		}, []string{"none 0 [0 1]"}, nil},
		"hosts, much later": {func(dir string) {
			left(t, dir, "none", 0, 0, 2, "a", 100, 110, true)
			left(t, dir, "none", 0, 1, 2, "b", 230, 240, true)
		}, []string{"none 0 [1]", "none 0 [0]"}, []int{0}},
		"no start": {func(dir string) {
			left(t, dir, "none", 0, 0, 2, "a", 0, 110, true)
			left(t, dir, "none", 0, 1, 2, "a", 0, 140, true)
		}, []string{"none 0 [0 1]"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.leave(dir)
			lives, err := ReadLives(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range lives {
				var ranks []int
				for _, d := range l {
					ranks = append(ranks, d.Chorus.Rank)
				}
				got = append(got, fmt.Sprint(l.Job(), " ", l[0].Chorus.Attempt, " ", ranks))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
			dumps, err := ReadDir(dir, 0)
			if err != nil || len(dumps) != len(lives[0]) {
				t.Errorf("%d dumps, %v", len(dumps), err)
			}
			var blamed []int
			for _, f := range Explain(dumps).Findings {
				blamed = append(blamed, f.Ranks...)
			}
			if !slices.Equal(blamed, test.blame) {
				t.Errorf("blamed: %v, want %v", blamed, test.blame)
			}
		})
	}
}

// TestTwice refuses the dumps of two jobs of one name that ran at the same time, rather than explain one by the other.
func TestTwice(t *testing.T) {
	dir := t.TempDir()
	left(t, dir, "none", 0, 0, 2, "a", 100, 110, true)
	if err := os.Rename(filepath.Join(dir, "none_rank_0.json"), filepath.Join(dir, "none.7_rank_0.json")); err != nil {
		t.Fatal(err)
	}
	left(t, dir, "none", 0, 0, 2, "a", 101, 111, true)
	if _, err := ReadDir(dir, 0); err == nil || !strings.Contains(err.Error(), "two jobs of this name ran at the same time") {
		t.Error(err)
	}
	left(t, dir, "other", 0, 0, 2, "a", 100, 105, true)
	if dumps, err := ReadDir(dir, 0); err == nil || len(dumps) != 1 || dumps[0].Chorus.Job != "other" {
		t.Errorf("%v, %v", dumps, err)
	}
}

// TestLeftovers begins a rank where an earlier life of its job, and another job, have left what they couldn't clear.
// Only the files of its own job's dead go.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-24 * time.Hour)
	make := func(name string, at time.Time, mk func(path string) error) {
		path := filepath.Join(dir, name)
		if err := mk(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	socket := func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) }
	file := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	make("train_rank_2.sock", old, socket)
	make(".dump-train_rank_1-77", old, file)
	kept := []string{".dump-train_rank_3-78", "train.big_rank_2.sock", ".dump-train.big_rank_1-79", "train_rank_4.sock",
		"train_rank_5.sock", "train_rank_6.sock"}
	make(kept[0], time.Now(), file)
	make(kept[1], old, socket)
	make(kept[2], old, file)
	make(kept[3], old, func(path string) error { return syscall.Mkfifo(path, 0o600) })
	make(kept[4], old, func(path string) error { // a listener
		l, err := net.Listen("unix", path)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	make(kept[5], time.Now(), socket)
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 0, 2)
	defer r.Close()
	var names []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := slices.Sorted(slices.Values(append(kept, "train_rank_0.sock")))
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestSameNameAtOnce begins a rank while a process of another job of that name has its socket: neither takes the
// other's files, and the entries of both are kept separate.
func TestSameNameAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := exec.Command(os.Args[0], "-test.run", "^TestOtherJob$")
	first.Env = append(os.Environ(), "CHORUS_OBSERVE_TEST_OTHER="+dir)
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); first.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "none", "world", 0, 1)
	defer r.Close()
	if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("none.%d_rank_0.sock", os.Getpid()))); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers, err := AskLive(ctx, dir)
	if jobs := Running(answers); err != nil || len(jobs) != 2 || len(jobs[0]) != 1 || len(jobs[1]) != 1 {
		t.Errorf("%v, %v", jobs, err)
	}
	if answers, err = AskDumps(ctx, dir); err != nil {
		t.Fatal(err)
	}
	if lives, err := ReadLives(dir, 0); err == nil || len(lives.Running(answers)) != 0 {
		t.Errorf("%v, %v", lives, err)
	}
}

// TestOtherJob is the other job of TestSameNameAtOnce.
func TestOtherJob(t *testing.T) {
	dir := os.Getenv("CHORUS_OBSERVE_TEST_OTHER")
	if dir == "" {
		t.Skip("it's for TestSameNameAtOnce")
	}
	defer record.Open(record.Settings{Entries: 8, Dir: dir}, "none", "world", 0, 1).Close()
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}

// TestRunning sorts answers of two jobs, and sockets without an answer, by the jobs.
func TestRunning(t *testing.T) {
	live := func(job string, rank int, started int64) Answer {
		return Answer{Path: record.FileName(job, rank) + record.SocketSuffix,
			Live: &Live{Job: job, Rank: rank, Size: 4, Started: started}}
	}
	silent := func(job string, rank int, born int64) Answer {
		return Answer{Path: record.FileName(job, rank) + record.SocketSuffix, Born: time.Unix(0, born),
			Err: os.ErrDeadlineExceeded}
	}
	all := []Answer{live("a", 0, 10), silent("a", 1, 20), live("b", 0, 30), live("a", 2, 11), silent("a", 3, 5), silent("a.x",
		1, 40), silent("b", 1, 31)}
	var got []string
	for _, job := range Running(all) {
		var names []string
		for _, a := range job {
			names = append(names, record.NameOf(a.Path))
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := []string{"b_rank_0 b_rank_1", "a_rank_0 a_rank_2 a_rank_1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if jobs := Running(all[1:2]); len(jobs) != 1 || len(jobs[0]) != 1 {
		t.Errorf("%v", jobs)
	}
}

// TestUnwritable asks a rank for its dump whose directory takes none: it says why.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 1, 2)
	defer r.Close()
	if err := os.Mkdir(filepath.Join(dir, "train_rank_1.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers, err := AskDumps(ctx, dir)
	if err != nil || len(answers) != 1 {
		t.Fatal(answers, err)
	}
	if s := SilentOf(answers); len(s) != 1 || s[0].Dead || !strings.Contains(s[0].why(), "can't write it: observe: ") {
		t.Errorf("%+v, %v", s, answers[0].Err)
	}
}
