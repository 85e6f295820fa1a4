package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A process is a worker from the campaign's side.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	tasks   *json.Encoder
	answers chan answer // closed when the process has ended
	errors  tail
}

// start starts a worker, with more of an environment than the campaign's.
func start(command []string, more ...string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), answers: make(chan answer, 16)}
	p.cmd.Stderr = &p.errors
	// An interrupt of the campaign must not make its ranks seem to crash.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Env = append(append(os.Environ(), "GOTRACEBACK=all"), more...)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.tasks = in, json.NewEncoder(in)
	go func() {
		lines := json.NewDecoder(out)
		for {
			var a answer
			if lines.Decode(&a) != nil {
				break
			}
			p.answers <- a
		}
		p.cmd.Wait()
		close(p.answers)
	}()
	return p, nil
}

// end lets the process end by itself, and helps if it does not.
func (p *process) end() {
	p.in.Close()
	late := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	for range p.answers {
	}
}

// signal sends a signal to the process if there still is one.
func (p *process) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.cmd.Process.Kill()
	}
}

// tail keeps the end of what is written.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - 2*tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
