package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/internal/sys"
)

// Request is what a process that compiles is asked for.
type Request struct {
	Device  Device
	Options string
	Source  []byte
}

// Device says which one is compiled for: the library's file, which of its platforms, and which of that's devices.
type Device struct {
	Library         string
	Platform, Index int
}

// Error is what a compiler says of a source.
type Error struct {
	Log  string
	Code abi.Result
}

func (e *Error) Error() string { return "the source doesn't compile: " + plain.Text(e.Log) }

// Answer is what it says: first that it's ready, then for each request that the device is open, and the program.
type Answer struct {
	Step    step       `json:",omitempty"`
	Program []byte     `json:",omitempty"`
	Error   string     // why there is none
	Code    abi.Result // of the compiler, if it's an error in the source
}

type step string

const (
	ready  step = "ready"
	opened step = "opened"
	done   step = "done"
)

// Processes are those that compile sources, of one library: as many as there are sources at once, and cores. One is
// started if none is free. They're ended when there has been nothing to do for a while.
type Processes struct {
	mu      sync.Mutex
	command []string
	none    error // why there's no process of the command, from then on
	free    []*process
	room    chan struct{}
	idle    *time.Timer
	used    time.Time
}

// idleTime is how long a process waits for the next source.
const idleTime = 30 * time.Second

// process is one that runs.
type process struct {
	cmd     *exec.Cmd
	to      *os.File
	from    *os.File
	answers chan Answer // closed at the end of what it says
	said    heard
	stopped chan struct{}
	ended   chan struct{}
	how     error // how it ended
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

// Compile has a process compile. A process that crashes or hangs is an answer, too; the error says why there's none
// that could.
func (w *Processes) Compile(command []string, q *Request) (Answer, error) {
	c, err := config.Load(nil)
	if err != nil {
		return Answer{}, err
	}
	limit := c.OpenCLCompilerTimeout
	room := w.places()
	room <- struct{}{}
	defer func() { <-room }()
	p, err := w.take(command, limit)
	if err != nil {
		return Answer{}, err
	}
	a, unable, err := p.compile(q, limit)
	if unable {
		err = fmt.Errorf("the process that compiles can't use the device: %s", plain.Text(a.Error))
		p.stop()
		w.without(command, err)
		return Answer{}, err
	}
	if err != nil {
		p.stop()
		return p.failed(a.Step, err), nil
	}
	w.giveBack(command, p)
	return a, nil
}

// places has room for as many processes as there are cores.
func (w *Processes) places() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == nil {
		w.room = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	return w.room
}

// take is a process of the command that has nothing to do.
func (w *Processes) take(command []string, limit time.Duration) (*process, error) {
	w.mu.Lock()
	if !slices.Equal(command, w.command) {
		w.stop()
		w.command, w.none = command, nil
	}
	if w.none != nil {
		defer w.mu.Unlock()
		return nil, w.none
	}
	w.used = time.Now()
	if n := len(w.free); n > 0 {
		p := w.free[n-1]
		w.free = w.free[:n-1]
		w.mu.Unlock()
		return p, nil
	}
	w.mu.Unlock()
	p, err := start(command, limit)
	if err != nil {
		w.without(command, err)
	}
	return p, err
}

// without makes an error that of the command from now on.
func (w *Processes) without(command []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(command, w.command) {
		w.none = err
	}
}

// giveBack keeps a process for the next source, if that's one of the same command.
func (w *Processes) giveBack(command []string, p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(command, w.command) {
		p.stop()
		return
	}
	w.free, w.used = append(w.free, p), time.Now()
	if w.idle == nil {
		w.idle = time.AfterFunc(idleTime, w.rest)
	}
}

// compile asks for a source. unable means that the process can't use the device, and the answer says why. With an error
// the answer has how far it came.
func (p *process) compile(q *Request, limit time.Duration) (a Answer, unable bool, err error) {
	p.said.forget()
	go func() { _ = json.NewEncoder(p.to).Encode(q) }() // which ends when the process takes it, or is stopped
	if a, err = p.next(limit); err != nil || a.Step != opened {
		return a, err == nil, err
	}
	if a, err = p.next(limit); err != nil {
		a.Step = opened
	}
	return a, false, err
}

// next is what the process says next. It has a limit of the processor's time.
func (p *process) next(limit time.Duration) (Answer, error) {
	used := func() time.Duration {
		t, _ := sys.GroupTime(p.cmd.Process.Pid) // 0 where that isn't known: then it's by the clock
		return t
	}
	wait := newAllowance(limit, used())
	tick := time.NewTicker(wait.every)
	defer tick.Stop()
	for {
		select {
		case a, ok := <-p.answers:
			if !ok {
				return a, io.ErrUnexpectedEOF
			}
			return a, nil
		case <-tick.C:
			if err := wait.over(used()); err != nil {
				return Answer{}, err
			}
		}
	}
}

// failed is the answer of a process that came to a step, and has been stopped for an error.
func (p *process) failed(at step, err error) Answer {
	what := "compiler"
	if at != opened {
		what = "library, opened by the process that compiles,"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return Answer{Error: fmt.Sprintf("the driver's %s has ended its process: %v: %s", what, p.how, &p.said)}
	}
	return Answer{Error: fmt.Sprintf("the driver's %s has %v (the limit is CHORUS_OPENCL_COMPILER_TIMEOUT)", what, err)}
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
	p := &process{cmd: exec.Command(command[0], command[1:]...), to: to, from: from, answers: make(chan Answer),
		stopped: make(chan struct{}), ended: make(chan struct{})}
	folder := newFolder()
	p.cmd.Env = append(os.Environ(), compileVariable+"="+mark(int(requests.Fd()), int(answers.Fd()), folder))
	if folder != "" {
		p.cmd.Env = append(p.cmd.Env, Folder+"="+folder)
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
	go p.read()
	if a, err := p.next(limit); err != nil || a.Step != ready {
		p.stop()
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("the process of %q has %w before it was ready", command, err)
		}
		return nil, fmt.Errorf("the process of %q hasn't this package: %v: %s", command, p.how, &p.said)
	}
	return p, nil
}

// read passes on what the process says.
func (p *process) read() {
	defer close(p.answers)
	for receive := json.NewDecoder(p.from); ; {
		var a Answer
		if receive.Decode(&a) != nil {
			return
		}
		select {
		case p.answers <- a:
		case <-p.stopped:
			return
		}
	}
}

// stop ends the process with all that it has started, unless it has ended by itself.
func (p *process) stop() {
	close(p.stopped)
	p.to.Close()
	select {
	case <-p.ended:
	case <-time.After(100 * time.Millisecond): // it may be about to end by itself
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
	p.from.Close()
}

// stop ends the processes that have nothing to do. Others end when they have compiled.
func (w *Processes) stop() {
	for _, p := range w.free {
		p.stop()
	}
	w.free = nil
}

// rest ends the processes if there has been nothing to do.
func (w *Processes) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := idleTime - time.Since(w.used); len(w.free) > 0 && left > 0 {
		w.idle.Reset(left)
		return
	}
	w.idle = nil
	w.stop()
}

// Close ends the processes.
func (w *Processes) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	w.command = nil
}
