package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// TestRecords follows the directory of a job's records: ranks find it, it goes when the job ends well, stays when it
// fails, and is found by the job's name.
func TestRecords(t *testing.T) {
	jobs := t.TempDir()
	run := func(id string, env []string, command ...string) (string, error) {
		var out strings.Builder
		j := &Job{Command: command, RanksPerNode: 1, RunID: id, Records: jobs, Env: append(os.Environ(), env...),
			Stdout: &out}
		err := j.Run(context.Background())
		return out.String(), err
	}
	names := func() []string {
		all, err := filepath.Glob(filepath.Join(jobs, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	dir := filepath.Join(jobs, "train", "attempt_0")
	if out, err := run("train", nil, "sh", "-c", "echo $CHORUS_DUMP_DIR"); err != nil || !strings.Contains(out, dir) {
		t.Errorf("the rank finds %q, %v", out, err)
	}
	if len(names()) > 0 {
		t.Errorf("left behind by a job that ended well: %v", names())
	}
	for range 2 {
		if _, err := run("train", nil, "sh", "-c", "mkdir -p $CHORUS_DUMP_DIR; exit 3"); ExitCode(err) != 3 {
			t.Error(err)
		}
	}
	if len(names()) != 2 { // the second has another name: the first might run
		t.Errorf("left behind by two jobs that failed: %v", names())
	}
	if got, err := FindRecords(jobs, "train"); err != nil || filepath.Base(got) != "attempt_0" || !strings.HasPrefix(got,
		filepath.Join(jobs, "train")) {
		t.Errorf("found %q, %v", got, err)
	} else if job := filepath.Base(filepath.Dir(got)); Ended(jobs, got) != job {
		t.Errorf("job %q has ended, not %q", job, Ended(jobs, got))
	}
	if got, err := FindRecords(jobs, "nothing"); err == nil {
		t.Errorf("found %q", got)
	}
	// Old records are removed, unless their job still runs.
	var left []string
	for _, running := range []bool{true, false} {
		dir := filepath.Join(jobs, fmt.Sprint("old-", running))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if running {
			l, err := process.Lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			left = append(left, dir)
		}
		if attempt := filepath.Join(dir, "attempt_0"); (Ended(jobs, attempt) != "") == running {
			t.Errorf("running: %v, ended: %q", running, Ended(jobs, attempt))
		}
		long := time.Now().Add(-2 * keepRecords)
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run("next[1]", nil, "sh", "-c", "mkdir -p $CHORUS_DUMP_DIR; exit 3"); ExitCode(err) != 3 {
		t.Error(err)
	}
	if got := slices.DeleteFunc(names(),
		func(name string) bool { return !strings.Contains(name, "old-") }); !slices.Equal(got, left) {
		t.Errorf("of old records %v are left, want %v", got, left)
	}
	if got, err := FindRecords(jobs, "next[1]"); err != nil || got != filepath.Join(jobs, "next[1]", "attempt_0") {
		t.Errorf("found %q, %v", got, err)
	}
	own := t.TempDir()
	if out, err := run("mine", []string{"CHORUS_DUMP_DIR=" + own}, "sh", "-c",
		"echo $CHORUS_DUMP_DIR; exit 3"); ExitCode(err) != 3 || !strings.Contains(out, own+"\n") {
		t.Errorf("the rank finds %q, %v", out, err)
	}
	if got, err := FindRecords(jobs, "mine"); err != nil || got != own {
		t.Errorf("%q, %v", got, err)
	}
	if job := Ended(jobs, own); job != "" {
		t.Errorf("%s: nobody knows whether %q has ended", own, job)
	}
	for _, bad := range []string{"../train", "*", "a/b"} {
		if got, err := FindRecords(jobs, bad); err == nil {
			t.Errorf("%s: found %q", bad, got)
		}
	}
	// A job runs though its records can't be kept.
	jobs = filepath.Join(own, "a file")
	if err := os.WriteFile(jobs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("train", nil, "sh", "-c", "echo dir=$CHORUS_DUMP_DIR"); err != nil || !strings.Contains(out,
		"dir=\n") {
		t.Errorf("without a directory: %q, %v", out, err)
	}
}
