package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe"
)

// findRecords returns the directory where the ranks record what they do of the job, or in the directory, that is named.
// Without a name it's that which CHORUS_DUMP_DIR names here, if there are records, or else what find finds.
func findRecords(args []string, find func(jobs, jobOrDir string) (string, error)) (string, error) {
	if len(args) > 0 {
		return find(launch.JobsDir(), args[0])
	}
	if dir := os.Getenv("CHORUS_DUMP_DIR"); dir != "" && observe.Recorded(dir) {
		return dir, nil
	}
	return find(launch.JobsDir(), "")
}

// several is the error of a directory in which there are several jobs and none was named.
func several[T fmt.Stringer](dir, what string, jobs []T) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %s of several jobs; --job names one:", dir, what)
	for _, job := range jobs {
		fmt.Fprintf(&b, "\n  %v", job)
	}
	return fmt.Errorf("%s", b.String())
}

// liveJob is what the ranks of a job have answered.
type liveJob []observe.Answer

func (j liveJob) name() string {
	if j[0].Live == nil {
		return ""
	}
	return j[0].Live.Job
}

func (j liveJob) String() string {
	ranks := 0
	for _, a := range j {
		if a.Live != nil {
			ranks++
		}
	}
	return fmt.Sprintf("job %q, of which %d ranks answer", j.name(), ranks)
}

// pickRunning returns the answers of the job that is named, or of the only one.
func pickRunning(dir, name string, answers []observe.Answer) (liveJob, error) {
	var jobs []liveJob
	for _, job := range observe.Running(answers) {
		if j := liveJob(job); name == "" || j.name() == name {
			jobs = append(jobs, j)
		}
	}
	switch {
	case len(jobs) > 1:
		return nil, several(dir, "ranks", jobs)
	case len(jobs) == 1:
		return jobs[0], nil
	case name != "" && len(answers) > 0:
		return nil, fmt.Errorf("no rank of job %q answers in %s", name, dir)
	}
	return nil, nil
}

// pickLife returns the dumps of the job that is named: of the one that runs, or else its last life. Without a name
// there may be only one that runs.
func pickLife(dir, name string, lives observe.Lives, answers []observe.Answer) (observe.Life, error) {
	var named observe.Lives
	for _, l := range lives {
		if name == "" || l.Job() == name {
			named = append(named, l)
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("%s has no dumps of job %q", dir, name)
	}
	running := named.Running(answers)
	switch {
	case len(running) > 1:
		return nil, several(dir, "ranks", running)
	case len(running) == 1:
		return running[0], nil
	}
	return named[0], nil
}
