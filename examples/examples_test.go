// Package examples runs the programs below it, as processes under a launcher.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch"
)

// TestPrograms has each program compute with several ranks. Its output must match all of want; the programs check their
// results themselves.
func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	state := filepath.Join(t.TempDir(), "state")
	for _, test := range []struct {
		name, args string
		ranks      int
		lose       int
		want       []string
	}{
		{"quickstart", "", 3, 0, []string{`rank 2 of 3: sum of the ranks is 3\n`}},
		{"allreduce", "-count 1000", 3, 0, []string{`rank 0 of 3: 1000 elements averaged to 1 by`}},
		{"allreduce", "-ordinary", 2, 0, []string{`rank 1 of 2: 1048576 elements averaged to 0.5 by`}},
		{"ring", "", 3, 0, []string{`rank 0, process \d+\n(.*\n)?.*rank 1, process \d+\n(.*\n)?.*rank 2, process \d+\n`}},
		{"window", "", 3, 0, []string{`300 tickets drawn; by rank: \[100 100 100\]`}},
		{"recover", "-die 1 -state " + state, 3, 2, []string{`rank 1 of 2 goes on at step \d+\n`,
			`the sum is 403200 after 200 steps, 200 of them in this run`}},
		{"recover", "-die 0 -how panic -state " + state, 3, 2, []string{`rank 1 of 2 goes on at step \d+\n`, `the sum is 403200 `}},
		{"recover", "-die 0 -how hook -state " + state, 3, 2, []string{`rank 1 of 2 goes on at step \d+\n`, `the sum is 403200 `}},
		{"paramserver", "", 4, 0, []string{`600 gradients, each .* the parameters are right to 0\.0\d+\n`,
			`worker 3 has sent \d+ gradients`}},
		{"paramserver", "-updates 5000 -die 2", 4, 1, []string{`goes on without worker 2: .*rank 1`, `5000 gradients, each`,
			`worker 1 has sent`, `worker 3 has sent`}},
		{"train", "-epochs 6", 3, 0,
			[]string{`3 ranks, 17226 parameters, gradients in 2 buckets: 9\d\.\d % of 359 new images`}},
		{"train", "-epochs 6 -bucket 1", 1, 0,
			[]string{`1 ranks, 17226 parameters, gradients in 3 buckets: 9\d\.\d % of 359 new images`}},
	} {
		t.Run(strings.TrimSpace(test.name+" "+test.args), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var out output
			job := launch.Job{
				Command: append([]string{filepath.Join(bin, test.name)}, strings.Fields(test.args)...), RanksPerNode: test.ranks,
				MayLose: test.lose,
				Stdout:  &out, Stderr: &out,
			}
			if err := job.Run(ctx); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range test.want {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}

	t.Run("overlap", func(t *testing.T) {
		for _, name := range []string{"timeline.json", "timeline.svg"} {
			file := filepath.Join(t.TempDir(), name)
			if out, err := exec.Command(filepath.Join(bin, "overlap"), file).CombinedOutput(); err != nil || !bytes.Contains(out,
				[]byte("for ")) {
				t.Fatalf("%v\n%s", err, out)
			}
			if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte("all_reduce")) {
				t.Errorf("%s: %v, %d bytes without an operation", name, err, len(text))
			}
		}
	})
}

// TestParamServerAlone: a job that can't go on says so.
func TestParamServerAlone(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "paramserver")
	if out, err := exec.Command("go", "build", "-o", bin, "./paramserver").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out output
	job := launch.Job{Command: []string{bin, "-die", "1"}, RanksPerNode: 2, MayLose: 1, Stdout: &out, Stderr: &out}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := job.Run(ctx); err == nil || !strings.Contains(out.String(), "no worker is left after 1 of 600 gradients") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// output is what ranks print, in both streams.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
