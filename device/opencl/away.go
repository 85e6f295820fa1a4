package opencl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec" // exec is an instantiated graph
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// request is what a process that compiles is asked for.
type request struct {
	Library          string // the file
	Platform, Device int    // which of its platforms, and which of that's devices
	Options          string
	Source           []byte
}

// answer is what it says: first that it's ready, then for each request that the device is open, and the program.
type answer struct {
	Step    step       `json:",omitempty"`
	Program []byte     `json:",omitempty"`
	Error   string     // why there is none
	Code    abi.Result // of the compiler, if it's an error in the source

	passing bool // it may be another one the next time
}

type step string

const (
	ready  step = "ready"
	opened step = "opened"
	done   step = "done"
)

// away is a process that compiles sources, of one library. It's started for the first source, and for the next one if
// it has ended; it's ended when it has had nothing to do for a while.
type away struct {
	mu      sync.Mutex
	command []string
	proc    *process
	none    error // why there's no process of the command, from then on
	idle    *time.Timer
	used    time.Time
}

// idleTime is how long a process waits for the next source.
const idleTime = 30 * time.Second

// process is one that runs.
type process struct {
	cmd      *osexec.Cmd
	to, from *os.File
	send     *json.Encoder
	receive  *json.Decoder
	said     heard
	ended    chan struct{}
	how      error // how it ended
}

// heard is the begin of what a process has printed.
type heard struct {
	mu   sync.Mutex
	text []byte
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, b[:min(len(b), 1000-len(h.text))]...) // the cause stands before the stacks
	return len(b), nil
}

func (h *heard) forget() {
	h.mu.Lock()
	h.text = h.text[:0]
	h.mu.Unlock()
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(string(h.text))
}

// compile has the process compile. A process that crashes or hangs is an answer, too; the error says why there's none
// that could.
func (w *away) compile(command []string, q *request) (answer, error) {
	c, err := config.Load(nil)
	if err != nil {
		return answer{}, err
	}
	limit := c.OpenCLCompilerTimeout
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(command, w.command) {
		w.stop()
		w.command, w.none = command, nil
	}
	if w.none != nil {
		return answer{}, w.none
	}
	if w.proc == nil {
		if w.proc, w.none = start(command, limit); w.none != nil {
			return answer{}, w.none
		}
	}
	w.used = time.Now()
	if w.idle == nil {
		w.idle = time.AfterFunc(idleTime, w.rest)
	}
	p := w.proc
	p.said.forget()
	p.within(limit)
	err = p.send.Encode(q)
	var open, a answer
	if err == nil {
		err = p.receive.Decode(&open)
	}
	if err == nil && open.Step == opened {
		err = p.receive.Decode(&a)
	}
	if err == nil {
		if open.Step != opened { // it has said why
			w.none = fmt.Errorf("the process that compiles can't use the device: %s", open.Error)
			w.stop()
			return answer{}, w.none
		}
		return a, nil
	}
	w.stop()
	what := "compiler"
	if open.Step != opened {
		what = "library, opened by the process that compiles,"
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return answer{Error: fmt.Sprintf("the driver's %s has hung for %v", what, limit), passing: open.Step != opened}, nil
	}
	a = answer{Error: fmt.Sprintf("the driver's %s has ended its process: %v: %s", what, p.how, &p.said)}
	a.passing = open.Step != opened || p.killed()
	return a, nil
}

// killed reports whether somebody else has ended the process, for want of memory for example.
func (p *process) killed() bool {
	var e *osexec.ExitError
	if !errors.As(p.how, &e) {
		return true
	}
	s, ok := e.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && (s.Signal() == syscall.SIGKILL || s.Signal() == syscall.SIGTERM)
}

// start starts a process, which is ready then.
func start(command []string, limit time.Duration) (*process, error) {
	requests, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requests.Close()
	from, answers, err := os.Pipe()
	if err != nil {
		to.Close()
		return nil, err
	}
	defer answers.Close()
	p := &process{cmd: osexec.Command(command[0], command[1:]...), to: to, from: from, send: json.NewEncoder(to),
		receive: json.NewDecoder(from), ended: make(chan struct{})}
	folder := newFolder()
	p.cmd.Env = append(os.Environ(), compileVariable+"="+cmp.Or(folder, "1"))
	if folder != "" {
		p.cmd.Env = append(p.cmd.Env, poclFolder+"="+folder)
	}
	p.cmd.ExtraFiles = []*os.File{requests, answers}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = &p.said, &p.said, time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a key that interrupts this process doesn't reach it
	if err := p.cmd.Start(); err != nil {
		to.Close()
		from.Close()
		dropFolder(folder)
		return nil, err
	}
	answers.Close() // so that the end of the process is one of the pipe
	go func() {
		p.how = p.cmd.Wait()
		dropFolder(folder)
		close(p.ended)
	}()
	p.within(limit)
	var a answer
	if err := p.receive.Decode(&a); err != nil || a.Step != ready {
		p.stop()
		return nil, fmt.Errorf("the process of %q hasn't this package: %v: %s", command, errors.Join(err, p.how), &p.said)
	}
	return p, nil
}

// within sets the deadline of what comes next.
func (p *process) within(limit time.Duration) {
	at := time.Now().Add(limit)
	_ = p.to.SetDeadline(at)
	_ = p.from.SetDeadline(at)
}

// stop ends the process with all that it has started, unless it has ended by itself.
func (p *process) stop() {
	p.to.Close()
	select {
	case <-p.ended:
	case <-time.After(100 * time.Millisecond): // it may be about to end by itself
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
	p.from.Close()
}

func (w *away) stop() {
	if w.proc != nil {
		w.proc.stop()
		w.proc = nil
	}
}

// rest ends the process if it has had nothing to do.
func (w *away) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := idleTime - time.Since(w.used); w.proc != nil && left > 0 {
		w.idle.Reset(left)
		return
	}
	w.idle = nil
	w.stop()
}

// close ends the process.
func (w *away) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
}
