package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
)

// spawner starts all processes from one OS thread that outlives them. The kernel ties a child's parent-death signal to
// the thread that forked it, and the Go runtime may end any thread that isn't locked.
type spawner struct {
	requests chan func()
	ended    chan struct{}

	mu      sync.Mutex
	own     map[int]bool // processes that were started here
	reaping *ticking     // of orphans that this process adopts; nil: it does not
}

// newSpawner makes this process adopt orphans below it if adopt is set.
func newSpawner(adopt bool) *spawner {
	s := &spawner{requests: make(chan func()), ended: make(chan struct{}), own: map[int]bool{}}
	if adopt && adoptOrphans(true) == nil {
		s.reaping = tick(time.Second, func() bool { s.reapAdopted(); return true })
	}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range s.requests {
			f()
		}
	}()
	return s
}

// start starts cmd, in a process group of its own, to be killed when the launcher dies: by the kernel, or by the guard
// where the kernel doesn't. It's bound to processors unless there are none.
func (s *spawner) start(cmd *exec.Cmd, to sys.CPUSet) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sys.SetDeathSignal(cmd.SysProcAttr)
	err := make(chan error)
	s.requests <- func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		e := startOn(cmd, to)
		if e == nil {
			s.own[cmd.Process.Pid] = true
		}
		err <- e
	}
	return <-err
}

// startOn starts cmd from this thread, whose affinity it inherits.
func startOn(cmd *exec.Cmd, to sys.CPUSet) error {
	if to != nil {
		before, err := sys.AllowedCPUs()
		if err != nil {
			return err
		}
		if err := sys.PinThread(0, to); err != nil {
			return err
		}
		defer sys.PinThread(0, before)
	}
	return cmd.Start()
}

// waited forgets a process that has been waited for.
func (s *spawner) waited(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, pid)
}

// close gives the thread back. The processes must be dead.
func (s *spawner) close() {
	if s.reaping != nil {
		s.reaping.stop()
		adoptOrphans(false)
	}
	close(s.requests)
	<-s.ended
}

// process is one rank while it runs.
type process struct {
	place
	spawner   *spawner
	cmd       *exec.Cmd
	started   time.Time
	streams   []*stream
	stderr    *tail
	errorFile string

	mu     sync.Mutex
	reaped bool // about to be: the pid may belong to another process from now on
}

// exit is how a process ended.
type exit struct {
	p      *process
	at     time.Time
	status syscall.WaitStatus
}

func (e exit) ok() bool { return e.status.Exited() && e.status.ExitStatus() == 0 }

// signal sends sig to the process and to everything it started, unless it is dead.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// wait reaps the process when it is dead, after killing what it left behind, and sends how it ended. The group is
// killed before the reaping because only until then the pid, which is the group's id too, cannot belong to another
// process else.
func (p *process) wait(exits chan<- exit, guard *guard) {
	pid := p.cmd.Process.Pid
	awaitExit(pid)
	at := time.Now()
	p.signal(syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	guard.remove(pid)
	p.cmd.Wait() // its error says no more than the status
	p.spawner.waited(pid)
	exits <- exit{p, at, p.cmd.ProcessState.Sys().(syscall.WaitStatus)}
}

// drain waits until all output has been passed on.
func (p *process) drain() {
	for _, s := range p.streams {
		s.drain()
	}
}

// startProcess starts the rank at p, which begins to write to the console and its log files.
func (r *runner) startProcess(p place, s *start, at *storeRelay) (*process, error) {
	j, attempt := r.job, s.attempt
	errorFile := filepath.Join(r.scratch, fmt.Sprintf("attempt_%d", attempt), strconv.Itoa(p.rank), "error.json")
	if err := os.MkdirAll(filepath.Dir(errorFile), 0o700); err != nil {
		return nil, err
	}
	proc := &process{place: p, spawner: r.spawner, stderr: &tail{}, errorFile: errorFile}
	proc.cmd = exec.Command(j.Command[0], j.Command[1:]...)
	proc.cmd.Env = j.environ(p, s.restarts, at, errorFile)
	if dir := r.records.attemptDir(attempt); dir != "" {
		proc.cmd.Env = append(proc.cmd.Env, dumpVariable+"="+dir)
	}
	if n := r.threads(p.localRank); n > 0 {
		proc.cmd.Env = append(proc.cmd.Env, threadsVariable+"="+strconv.Itoa(n))
	}
	if r.secret != "" {
		proc.cmd.Env = append(proc.cmd.Env, "CHORUS_SECRET_FILE="+r.secret)
	}
	if p.localRank == 0 && j.Stdin != nil {
		proc.cmd.Stdin = j.Stdin
	}
	out, err := r.openStream(p, attempt, Stdout)
	if err != nil {
		return nil, err
	}
	errs, err := r.openStream(p, attempt, Stderr)
	if err != nil {
		out.abandon()
		return nil, err
	}
	errs.tail = proc.stderr
	proc.cmd.Stdout, proc.cmd.Stderr = out.w, errs.w
	proc.streams = []*stream{out, errs}

	proc.started = time.Now()
	var to sys.CPUSet
	if r.bound != nil {
		to = r.bound[p.localRank].cpus
	}
	if err := r.spawner.start(proc.cmd, to); err != nil {
		out.abandon()
		errs.abandon()
		return nil, err
	}
	r.guard.add(proc.cmd.Process.Pid)
	for _, s := range proc.streams {
		s.w.Close()
		go s.copy()
	}
	return proc, nil
}

// openStream makes the pipe of one output stream and decides where it leads.
func (r *runner) openStream(p place, attempt int, which Streams) (*stream, error) {
	j := r.job
	s := &stream{log: r.console, done: make(chan struct{})}
	name, w := "stdout.log", r.console.out
	if which == Stderr {
		name, w = "stderr.log", r.console.err
	}
	redirect := j.Redirect.Of(p.localRank)&which != 0
	tee := j.Tee.Of(p.localRank)&which != 0
	if redirect || tee {
		path := filepath.Join(r.logDir, fmt.Sprintf("attempt_%d", attempt), strconv.Itoa(p.rank), name)
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		if err == nil {
			s.file, _, err = sys.OpenRegularAs(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		}
		if err != nil {
			return nil, fmt.Errorf("log file %s: %w", path, err)
		}
	}
	if (tee || !redirect) && j.shows(p.localRank) {
		s.line = &lineWriter{console: r.console, w: w, prefix: j.prefix(p.rank)}
	}
	var err error
	if s.r, s.w, err = os.Pipe(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// abandon undoes openStream for a process that did not start.
func (s *stream) abandon() {
	s.r.Close()
	s.w.Close()
	s.file.Close() // a nil file only says so
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
func (r *runner) failure(e exit, attempt int) *Failure {
	e.p.drain() // for the last lines
	f := &Failure{
		Kind: Exited, Attempt: attempt, Node: r.node, Host: r.host,
		Rank: e.p.rank, LocalRank: e.p.localRank, Pid: e.p.cmd.Process.Pid,
		After: e.at.Sub(e.p.started), Stderr: e.p.stderr.last(), Message: readErrorFile(e.p.errorFile),
	}
	if e.status.Signaled() {
		f.Kind, f.Signal, f.CoreDumped = Signaled, e.status.Signal(), e.status.CoreDump()
	} else {
		f.ExitStatus = e.status.ExitStatus()
	}
	return f
}

// notStarted turns the error of startProcess into a failure.
func (r *runner) notStarted(p place, attempt int, err error) *Failure {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) && pathErr.Path == r.job.Command[0] {
		err = fmt.Errorf("%s: %w", pathErr.Path, pathErr.Err)
	}
	return &Failure{
		Kind: NotStarted, Attempt: attempt, Node: r.node, Host: r.host,
		Rank: p.rank, LocalRank: p.localRank, Reason: err.Error(),
	}
}
