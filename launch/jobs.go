package launch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/launch/internal/process"
)

// Names in the directory of a job, besides those of its attempts.
const (
	labelName = ".job"    // whose it is
	givenName = "records" // a link to the directory of the user's in which the ranks record what they do
)

// label says whose a directory is, and from where its job was started.
type label struct {
	Job     string    `json:"job"`
	Began   time.Time `json:"began"`
	Dir     string    `json:"dir"` // the launcher's working directory
	Command []string  `json:"command"`
	Parent  string    `json:"parent"`  // the process that started the launcher
	Session string    `json:"session"` // the launcher's, which is that of its terminal
}

// maxLabel bounds what is read of a label.
const maxLabel = 1 << 20

func newLabel(job string, command []string) label {
	dir, _ := os.Getwd()
	return label{Job: job, Began: time.Now(), Dir: dir, Command: command, Parent: process.Identity(os.Getppid()),
		Session: session()}
}

func (l label) write(dir string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, labelName), text, 0o600)
}

// session tells the sessions of this host apart, of which a terminal has one.
func session() string {
	id, err := unix.Getsid(0)
	if err != nil {
		return ""
	}
	return process.Identity(id)
}

// ancestors are the processes from which this one descends, its parent first.
func ancestors() (all []string) {
	for pid := os.Getppid(); pid > 1 && len(all) < 100; pid = process.ParentOf(pid) {
		all = append(all, process.Identity(pid))
	}
	return all
}

// A foundJob is a job whose directory there is.
type foundJob struct {
	label
	path    string
	running bool
}

// jobsIn returns the jobs whose directories there are, the newest first. Of one without a label the name of its
// directory is the job's.
func jobsIn(jobs string) (all []foundJob) {
	entries, _ := os.ReadDir(jobs)
	for _, e := range entries {
		i, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		f := foundJob{path: filepath.Join(jobs, e.Name())}
		text, err := sys.ReadRegular(filepath.Join(f.path, labelName), maxLabel)
		if err != nil || json.Unmarshal(text, &f.label) != nil {
			f.label = label{Job: e.Name(), Began: i.ModTime()}
		}
		l, err := process.Flock(f.path, unix.LOCK_SH|unix.LOCK_NB)
		if f.running = err != nil; err == nil {
			l.Close()
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b foundJob) int { return b.Began.Compare(a.Began) })
	return all
}

// FindRecords returns the directory in which the ranks of a job record what they do. It's that of the newest attempt of
// the newest job of exactly that name, or the argument itself if it is a directory of such records.
//
// Without a name the job is one that was started here: by the nearest of the processes from which this one descends,
// such as the shell, or else in the session of this terminal. The newest of several is taken, unless more than one of
// them runs. Then, and if none of several was started here, the error is an *AmbiguousError.
func FindRecords(jobs, jobOrDir string) (string, error) {
	if jobOrDir != "" {
		return findNamed(jobs, jobOrDir)
	}
	return findNearest(jobsIn(jobs), fmt.Errorf("there is no job of `chorus run` in %s", jobs))
}

// FindRunning is FindRecords where only a job that runs is meant if none is named.
func FindRunning(jobs, jobOrDir string) (string, error) {
	if jobOrDir != "" {
		return findNamed(jobs, jobOrDir)
	}
	running := slices.DeleteFunc(jobsIn(jobs), func(f foundJob) bool { return !f.running })
	return findNearest(running, fmt.Errorf("no job of `chorus run` is running whose records are in %s", jobs))
}

// JobNames are the names of the jobs whose records are in a directory, the newest first; with running, of those that
// run. One that can't be printed is left out.
func JobNames(jobs string, running bool) (names []string) {
	for _, f := range jobsIn(jobs) {
		odd := plain.Line(f.Job) != f.Job
		if (f.running || !running) && !odd && !slices.Contains(names, f.Job) {
			names = append(names, f.Job)
		}
	}
	return names
}

func findNamed(jobs, jobOrDir string) (string, error) {
	if i, err := os.Stat(jobOrDir); err == nil && i.IsDir() {
		return newestAttempt(jobOrDir), nil
	}
	all := jobsIn(jobs)
	if i := slices.IndexFunc(all, func(f foundJob) bool { return f.Job == jobOrDir }); i >= 0 {
		return newestAttempt(all[i].path), nil
	}
	return "", fmt.Errorf("there is no job or directory %q; jobs of `chorus run` are in %s", jobOrDir, jobs)
}

func findNearest(all []foundJob, none error) (string, error) {
	if len(all) == 0 {
		return "", none
	}
	near, here := nearest(all, ancestors(), session())
	running := 0
	for _, f := range near {
		if f.running {
			running++
		}
	}
	if len(near) > 1 && (!here || running > 1) {
		return "", &AmbiguousError{near}
	}
	return newestAttempt(near[0].path), nil
}

// nearest returns those jobs that were started most closely to this process, and whether they were started here at all:
// by one of the processes from which it descends, or in its session.
func nearest(all []foundJob, from []string, session string) (near []foundJob, here bool) {
	far := len(from) + 1
	distance := func(f foundJob) int {
		if i := slices.Index(from, f.Parent); i >= 0 {
			return i
		}
		if session != "" && f.Session == session {
			return len(from)
		}
		return far
	}
	least := far
	for _, f := range all {
		least = min(least, distance(f))
	}
	near = slices.DeleteFunc(slices.Clone(all), func(f foundJob) bool { return distance(f) > least })
	return near, least < far
}

// AmbiguousError lists jobs of which any could be meant.
type AmbiguousError struct{ jobs []foundJob }

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	b.WriteString("there are several jobs of `chorus run`: give the name of one, or its directory")
	for _, f := range e.jobs {
		state := "has ended, began"
		if f.running {
			state = "runs since"
		}
		name := f.Job
		if slices.ContainsFunc(e.jobs, func(o foundJob) bool { return o.Job == f.Job && o.path != f.path }) {
			name = f.path
		}
		fmt.Fprintf(&b, "\n  %q %s %s", name, state, f.Began.Format(time.DateTime))
		if f.Dir != "" {
			fmt.Fprintf(&b, " in %q: %q", f.Dir, cmp.Or(strings.Join(f.Command, " "), "?"))
		}
	}
	return b.String()
}
