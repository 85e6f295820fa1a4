package process

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Spawner starts all processes from one OS thread that outlives them. The kernel ties a child's parent-death signal to
// the thread that forked it, and the Go runtime may end any thread that isn't locked.
type Spawner struct {
	requests chan func()
	ended    chan struct{}

	mu      sync.Mutex
	own     map[int]bool // processes that were started here
	Reaping *Ticking     // of orphans that this process adopts; nil: it does not
}

// NewSpawner makes this process adopt orphans below it if adopt is set.
func NewSpawner(adopt bool) *Spawner {
	s := &Spawner{requests: make(chan func()), ended: make(chan struct{}), own: map[int]bool{}}
	if adopt && adoptOrphans(true) == nil {
		s.Reaping = Tick(time.Second, func() bool { s.reapAdopted(); return true })
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

// Start starts cmd, in a process group of its own, to be killed when the launcher dies: by the kernel, or by the guard
// where the kernel doesn't. It's bound to processors unless there are none.
func (s *Spawner) Start(cmd *exec.Cmd, to sys.CPUSet) error {
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
func (s *Spawner) waited(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, pid)
}

// Close gives the thread back. The processes must be dead.
func (s *Spawner) Close() {
	if s.Reaping != nil {
		s.Reaping.Stop()
		adoptOrphans(false)
	}
	close(s.requests)
	<-s.ended
}

// Process is one rank while it runs.
type Process struct {
	Place
	Spawner   *Spawner
	Cmd       *exec.Cmd
	Started   time.Time
	Streams   []*Stream
	Stderr    *Tail
	ErrorFile string

	mu     sync.Mutex
	reaped bool // about to be: the pid may belong to another process from now on
}

// Exit is how a process ended.
type Exit struct {
	Process *Process
	At      time.Time
	Status  syscall.WaitStatus
}

// OK says whether it ended well.
func (e Exit) OK() bool { return e.Status.Exited() && e.Status.ExitStatus() == 0 }

// Signal sends sig to the process and to everything it started, unless it is dead.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.Cmd.Process.Pid, sig)
	}
}

// Wait reaps the process when it is dead, after killing what it left behind, and sends how it ended. The group is
// killed before the reaping because only until then the pid, which is the group's id too, cannot belong to another
// process else.
func (p *Process) Wait(exits chan<- Exit, guard *Guard) {
	pid := p.Cmd.Process.Pid
	AwaitExit(pid)
	at := time.Now()
	p.Signal(syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	guard.remove(pid)
	p.Cmd.Wait() // its error says no more than the status
	p.Spawner.waited(pid)
	exits <- Exit{p, at, p.Cmd.ProcessState.Sys().(syscall.WaitStatus)}
}

// Drain waits until all output has been passed on.
func (p *Process) Drain() {
	for _, s := range p.Streams {
		s.drain()
	}
}

// Stopped reports whether the process is stopped by a signal, such as SIGSTOP, and not by a debugger.
func (p *Process) Stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && isStopped(p.Cmd.Process.Pid)
}

// Place is where a rank stands in the job.
type Place struct {
	Rank, WorldSize         int
	LocalRank, LocalSize    int
	Node, Nodes             int
	RoleRank, RoleWorldSize int
}
