package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
)

// startProcess starts the rank at p, which begins to write to the console and its log files.
func (r *runner) startProcess(p process.Place, s *rendezvous.Start, at *storeRelay) (*process.Process, error) {
	j, attempt := r.job, s.Attempt
	errorFile := filepath.Join(r.scratch, fmt.Sprintf("attempt_%d", attempt), strconv.Itoa(p.Rank), "error.json")
	if err := os.MkdirAll(filepath.Dir(errorFile), 0o700); err != nil {
		return nil, err
	}
	proc := &process.Process{Place: p, Spawner: r.spawner, Stderr: &process.Tail{}, ErrorFile: errorFile}
	proc.Cmd = exec.Command(j.Command[0], j.Command[1:]...)
	proc.Cmd.Env = j.environ(p, s.Restarts, at, errorFile)
	if dir := r.records.attemptDir(attempt); dir != "" {
		proc.Cmd.Env = append(proc.Cmd.Env, dumpVariable+"="+dir)
	}
	if n := r.threads(p.LocalRank); n > 0 {
		proc.Cmd.Env = append(proc.Cmd.Env, threadsVariable+"="+strconv.Itoa(n))
	}
	if r.secret != "" {
		proc.Cmd.Env = append(proc.Cmd.Env, "CHORUS_SECRET_FILE="+r.secret)
	}
	if p.LocalRank == 0 && j.Stdin != nil {
		proc.Cmd.Stdin = j.Stdin
	}
	out, err := r.openStream(p, attempt, Stdout)
	if err != nil {
		return nil, err
	}
	errs, err := r.openStream(p, attempt, Stderr)
	if err != nil {
		out.Abandon()
		return nil, err
	}
	errs.Tail = proc.Stderr
	proc.Cmd.Stdout, proc.Cmd.Stderr = out.W, errs.W
	proc.Streams = []*process.Stream{out, errs}

	proc.Started = time.Now()
	var to sys.CPUSet
	if r.bound != nil {
		to = r.bound[p.LocalRank].cpus
	}
	if err := r.spawner.Start(proc.Cmd, to); err != nil {
		out.Abandon()
		errs.Abandon()
		return nil, err
	}
	r.guard.Add(proc.Cmd.Process.Pid)
	for _, s := range proc.Streams {
		s.W.Close()
		go s.Copy()
	}
	return proc, nil
}

// openStream makes the pipe of one output stream and decides where it leads.
func (r *runner) openStream(p process.Place, attempt int, which Streams) (*process.Stream, error) {
	j := r.job
	s := &process.Stream{Log: r.console, Done: make(chan struct{})}
	name, w := "stdout.log", r.console.Out
	if which == Stderr {
		name, w = "stderr.log", r.console.Err
	}
	redirect := j.Redirect.Of(p.LocalRank)&which != 0
	tee := j.Tee.Of(p.LocalRank)&which != 0
	if redirect || tee {
		path := filepath.Join(r.logDir, fmt.Sprintf("attempt_%d", attempt), strconv.Itoa(p.Rank), name)
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		if err == nil {
			s.File, _, err = sys.OpenRegularAs(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		}
		if err != nil {
			return nil, fmt.Errorf("log file %s: %w", path, err)
		}
	}
	if (tee || !redirect) && j.shows(p.LocalRank) {
		s.Line = &process.LineWriter{Console: r.console, W: w, Prefix: j.prefix(p.Rank)}
	}
	var err error
	if s.R, s.W, err = os.Pipe(); err != nil {
		s.File.Close()
		return nil, err
	}
	return s, nil
}

// shows reports whether a local rank's output goes to the console.
func (j *Job) shows(localRank int) bool {
	return j.Console == nil || slices.Contains(j.Console, localRank)
}

// colours of the prefixes: the six of the ANSI palette that are neither black nor white.
var colours = [...]int{36, 33, 32, 35, 34, 31}

// prefix begins every line of a rank's output.
func (j *Job) prefix(rank int) string {
	if !j.Color {
		return fmt.Sprintf("[%d]: ", rank)
	}
	return fmt.Sprintf("\x1b[%dm[%d]:\x1b[0m ", colours[rank%len(colours)], rank)
}

// failure turns the exit of a rank into the failure that it means.
func (r *runner) failure(e process.Exit, attempt int) *Failure {
	e.Process.Drain() // for the last lines
	f := &Failure{
		Kind: Exited, Attempt: attempt, Node: r.node, Host: r.host,
		Rank: e.Process.Rank, LocalRank: e.Process.LocalRank, Pid: e.Process.Cmd.Process.Pid,
		After: e.At.Sub(e.Process.Started), Stderr: e.Process.Stderr.Last(),
		Message: process.ReadErrorFile(e.Process.ErrorFile),
	}
	if e.Status.Signaled() {
		f.Kind, f.Signal, f.CoreDumped = Signaled, e.Status.Signal(), e.Status.CoreDump()
	} else {
		f.ExitStatus = e.Status.ExitStatus()
	}
	return f
}

// notStarted turns the error of startProcess into a failure.
func (r *runner) notStarted(p process.Place, attempt int, err error) *Failure {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) && pathErr.Path == r.job.Command[0] {
		err = fmt.Errorf("%s: %w", pathErr.Path, pathErr.Err)
	}
	return &Failure{
		Kind: NotStarted, Attempt: attempt, Node: r.node, Host: r.host,
		Rank: p.Rank, LocalRank: p.LocalRank, Reason: err.Error(),
	}
}
