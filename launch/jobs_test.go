package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
)

// TestExactName finds a job by its name, and none whose name only begins so.
func TestExactName(t *testing.T) {
	jobs := t.TempDir()
	var kept []*records
	for _, name := range []string{"t.big", "t", "t"} {
		r, err := openRecords(jobs, newLabel(name, []string{"./" + name}), "")
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, r)
		defer r.lock.Close()
	}
	if got, err := FindRecords(jobs, "t"); err != nil || got != kept[2].dir {
		t.Errorf("t is %s, %v; the second of that name is in %s", got, err, kept[2].dir)
	}
	if got, err := FindRecords(jobs, "t.big"); err != nil || got != kept[0].dir {
		t.Errorf("t.big is %s, %v", got, err)
	}
	for _, none := range []string{"t.", "t.b", "T", filepath.Base(kept[2].dir)} {
		if got, err := FindRecords(jobs, none); err == nil {
			t.Errorf("%s is %s", none, got)
		}
	}
}

// Names for a shell to complete are each there once, and none that would write to the terminal what it likes.
func TestJobNames(t *testing.T) {
	jobs := t.TempDir()
	for _, name := range []string{"first", "odd\x1b[2J", "second", "first"} {
		r, err := openRecords(jobs, newLabel(name, nil), "")
		if err != nil {
			t.Fatal(err)
		}
		defer r.lock.Close()
	}
	for _, running := range []bool{false, true} {
		if got := JobNames(jobs, running); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("JobNames = %q", got)
		}
	}
}

// TestNearest chooses among jobs if none is named: those of this shell before those of this terminal, and else none of
// several.
func TestNearest(t *testing.T) {
	job := func(name, parent, session string, running bool) foundJob {
		return foundJob{label: label{Job: name, Parent: parent, Session: session}, path: "/jobs/" + name, running: running}
	}
	from := []string{"shell", "terminal"}
	for name, test := range map[string]struct {
		jobs []foundJob
		want string
		here bool
	}{
		"the shell's":     {[]foundJob{job("a", "x", "s", true), job("b", "terminal", "s", true), job("c", "shell", "s", false)}, "c", true},
		"the terminal's":  {[]foundJob{job("a", "x", "other", true), job("b", "y", "s", false), job("c", "z", "s", false)}, "bc", true},
		"somebody else's": {[]foundJob{job("a", "x", "other", true), job("b", "y", "more", false)}, "ab", false},
		"one":             {[]foundJob{job("a", "x", "other", false)}, "a", false},
	} {
		near, here := nearest(test.jobs, from, "s")
		got := ""
		for _, f := range near {
			got += f.Job
		}
		if got != test.want || here != test.here {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, here, test.want, test.here)
		}
	}
	if _, err := findNearest([]foundJob{job("a", "x", "other", false)}, nil); err != nil {
		t.Error(err)
	}
	two := []foundJob{job("a", "x", "other", true), job("\x1b[2J", "y", "more", false)}
	_, err := findNearest(two, nil)
	if bad := (*AmbiguousError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), `"a" runs since`) ||
		strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("%v", err)
	}
	here := []foundJob{job("new", process.Identity(os.Getppid()), "", false), job("old", process.Identity(os.Getppid()), "", false)}
	if got, err := findNearest(here, nil); err != nil || got != "/jobs/new" {
		t.Errorf("%s, %v", got, err)
	}
	here[0].running, here[1].running = true, true
	if got, err := findNearest(here, nil); err == nil {
		t.Errorf("%s, though two run", got)
	}
	if got, err := findNearest(nil, os.ErrNotExist); err != os.ErrNotExist {
		t.Errorf("%s, %v", got, err)
	}
}

// TestFindRunning finds the job that runs, which the records of one that has ended don't hide.
func TestFindRunning(t *testing.T) {
	jobs := t.TempDir()
	running, err := openRecords(jobs, newLabel("running", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	defer running.lock.Close()
	ended, err := openRecords(jobs, newLabel("ended", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	ended.close(false, "ended", "")
	if got, err := FindRunning(jobs, ""); err != nil || got != running.dir {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := FindRecords(jobs, ""); err != nil || got != ended.dir {
		t.Errorf("%s, %v", got, err)
	}
}

// TestOddRecords has a FIFO, a device and a directory lie where the launcher looks for what its ranks have left.
func TestOddRecords(t *testing.T) {
	dir := t.TempDir()
	script := `
mkfifo "$CHORUS_DUMP_DIR/x_rank_1.json" "$CHORUS_DUMP_DIR/x_rank_2.sock" "$TORCHELASTIC_ERROR_FILE"
ln -s /dev/zero "$CHORUS_DUMP_DIR/x_rank_3.json"
truncate -s 40G "$CHORUS_DUMP_DIR/x_rank_4.json"
mkdir "$CHORUS_DUMP_DIR/x_rank_5.json"
exit 3`
	var out strings.Builder
	j := &Job{Command: []string{"sh", "-c", script}, RanksPerNode: 1, Stderr: &out, Records: t.TempDir(),
		Env: append(os.Environ(), dumpVariable+"="+dir)}
	if err := j.Run(t.Context()); ExitCode(err) != 3 {
		t.Errorf("%v\n%s", err, &out)
	}
	if names := children(dir, func(string) bool { return true }); len(names) != 5 {
		t.Errorf("left: %v", names)
	}
}

// TestStaleDumps runs a job in a directory with the records of earlier jobs of its name: the explanation of its failure
// uses its own ranks' records only.
func TestStaleDumps(t *testing.T) {
	dir := t.TempDir()
	run := func(attempts int, names ...string) string {
		t.Helper()
		var out strings.Builder
		j := &Job{Command: append(launchtest.Self(), names...), RanksPerNode: 2, RunID: "none", Stderr: &out, Records: t.TempDir(),
			MaxRestarts: attempts, Env: append(os.Environ(), role+"=dumping", dumpVariable+"="+dir)}
		if err := j.Run(t.Context()); ExitCode(err) != 3 {
			t.Fatalf("%v\n%s", err, &out)
		}
		return out.String()
	}
	const blamed = "rank 1 is missing from barrier"
	if out := run(0, "all"); !strings.Contains(out, blamed) {
		t.Fatalf("the first job is not explained:\n%s", out)
	}
	if out := run(0, "none"); strings.Contains(out, "missing") {
		t.Errorf("the second is explained by what the first has left:\n%s", out)
	}
	if out := run(0, "0"); !strings.Contains(out, "rank 1 left no dump") {
		t.Errorf("the third is not explained by its own rank alone:\n%s", out)
	}
	if out := run(1, "first"); strings.Count(out, blamed) != 1 {
		t.Errorf("the second attempt is explained by what the first has left:\n%s", out)
	}
}

func init() {
	// dumping leaves the dump of a rank, of which rank 0 waits for rank 1, and fails. args[0] says which ranks do: all, 0,
	// none, or first, those of the first attempt.
	roles["dumping"] = func(args []string) {
		dumpThenFail(args[0])
	}
}

// TestFull begins a job where the directory for temporary files, or that for dumps, is full.
func TestFull(t *testing.T) {
	small := t.TempDir()
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=20", "chorus", small)
	if text, err := mount.CombinedOutput(); err != nil {
		t.Skipf("a small file system can't be mounted: %v: %s", err, text)
	}
	defer exec.Command("umount", "-l", small).Run()
	if err := os.WriteFile(filepath.Join(small, "filler"), make([]byte, 64<<10), 0o600); err == nil {
		t.Log("it takes 64 KiB")
	}
	launcher := func(more ...string) string {
		cmd := exec.Command(os.Args[0], "env")
		cmd.Env = append(append(os.Environ(), role+"=launcher"), more...)
		text, _ := cmd.CombinedOutput()
		return string(text)
	}
	want := small + " is full: 0 KiB of 0 MiB are left"
	if out := launcher("TMPDIR=" + small); !strings.Contains(out, want) {
		t.Errorf("a full TMPDIR:\n%s", out)
	}
	if out := launcher("CHORUS_DUMP_DIR=" + small); !strings.Contains(out, want) {
		t.Errorf("a full directory for dumps:\n%s", out)
	}
	os.Remove(filepath.Join(small, "filler"))
	for i := range 40 { // until there are no more files
		if os.WriteFile(filepath.Join(small, strings.Repeat("x", i+1)), nil, 0o600) != nil {
			break
		}
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(small, &s); err != nil || s.Ffree > 0 {
		t.Fatal(err, s.Ffree)
	}
	if out := launcher("TMPDIR=" + small); !strings.Contains(out, "no space left on device; "+small+" is full") {
		t.Errorf("a TMPDIR without files:\n%s", out)
	}
}

// TestLimits refuses more ranks than can be, before anything is made for them.
func TestLimits(t *testing.T) {
	for _, j := range []*Job{
		{RanksPerNode: 100_000_000}, {RanksPerNode: MaxRanksPerNode + 1},
		{RanksPerNode: MaxRanksPerNode, Nodes: 1000, Endpoint: "127.0.0.1:1"},
		{RanksPerNode: 1, Nodes: 100_000_000, Endpoint: "127.0.0.1:1"},
	} {
		j.Command = []string{"true"}
		begin := time.Now()
		if err := j.Run(t.Context()); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "than") {
			t.Errorf("%d ranks on each of %d nodes: %v, after %v", j.RanksPerNode, j.Nodes, err, time.Since(begin))
		}
	}
}

// dumpThenFail is the role dumping.
func dumpThenFail(which string) {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	check(err)
	attempt, err := strconv.Atoi(os.Getenv("TORCHELASTIC_RESTART_COUNT"))
	check(err)
	if which == "all" || which == strconv.Itoa(rank) || which == "first" && attempt == 0 {
		dir := os.Getenv(dumpVariable)
		r := record.Open(record.Settings{Entries: 8, Dir: dir, Attempt: attempt}, "none", "world", rank, 2)
		if rank == 0 {
			r.Begin(&backend.Op{Kind: backend.Barrier}, false)
			for { // rank 1 has left its dump, and waits to be stopped
				d, err := observe.ReadFile(filepath.Join(dir, "none_rank_1.json"), 1)
				if err == nil && process.ParentOf(d.Chorus.Pid) == os.Getppid() || which == "0" {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		r.Failed(errors.New("no matter"))
	}
	if rank == 0 {
		os.Exit(3)
	}
	forever()
}
