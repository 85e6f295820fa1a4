package hosts

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// remote is the launcher of one host, as it's seen from here.
type remote struct {
	Host
	node   int
	ranks  string // that it has; empty: not known
	cmd    *exec.Cmd
	send   chan []byte // frames to it; closed: no more
	closed bool
	up     bool         // it waits for orders, or has them
	ready  bool         // it has its orders
	begun  bool         // its job has begun
	done   bool         // it has said how it ended
	gone   bool         // its process has ended
	words  process.Tail // of its standard error

	// Since when it has said nothing, in nanoseconds; 0: it is not up, or what it has said last is being passed on.
	heard atomic.Int64

	mu     sync.Mutex
	reaped bool // about to be: the pid may belong to another process from now on
}

// remoteEvent is something that a launcher has said, or, without a frame, that its process has ended.
type remoteEvent struct {
	from  *remote
	up    bool
	frame frame
	err   error // why there are no more frames
}

// queueLength is how many frames wait for a host that takes none: some beats and signals.
const queueLength = 64

// start starts the launcher of one host, whose ranks have names.
func (r *hostsRun) start(node int, ranks string) *remote {
	host := r.Hosts[node]
	m := &remote{Host: host, node: node, ranks: ranks, send: make(chan []byte, queueLength)}
	command := r.command(host)
	m.cmd = exec.Command(command[0], command[1:]...)
	// A session of its own keeps the terminal's signals and ssh's questions away.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, out, errs, err := m.pipes()
	if err != nil {
		m.cmd = nil
		go func() { r.events <- remoteEvent{from: m, err: err} }()
		return m
	}
	go func() {
		for data := range m.send {
			if _, err := in.Write(data); err != nil {
				break // the reader notices
			}
		}
		in.Close()
		for range m.send {
		}
	}()
	var readers sync.WaitGroup
	var failed error
	readers.Go(func() { failed = r.read(m, &process.PipeReader{F: out}) })
	readers.Go(func() { r.show(m, &process.PipeReader{F: errs}) })
	go func() {
		m.awaitExit()
		// All of its output is in the pipes by now. Another process may hold them, such as the one by which ssh shares
		// connections.
		out.SetReadDeadline(time.Now())
		errs.SetReadDeadline(time.Now())
		readers.Wait()
		out.Close()
		errs.Close()
		err := m.cmd.Wait()
		if err == nil || failed != nil && !errors.Is(failed, io.EOF) {
			err = failed
		}
		r.events <- remoteEvent{from: m, err: err}
	}()
	return m
}

// pipes starts the process, with pipes to it and from it.
func (m *remote) pipes() (in io.WriteCloser, out, errs *os.File, err error) {
	var outW, errsW *os.File
	if out, outW, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	defer outW.Close()
	if errs, errsW, err = os.Pipe(); err != nil {
		out.Close()
		return nil, nil, nil, err
	}
	defer errsW.Close()
	m.cmd.Stdout, m.cmd.Stderr = outW, errsW
	if in, err = m.cmd.StdinPipe(); err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		out.Close()
		errs.Close()
		return nil, nil, nil, err
	}
	return in, out, errs, nil
}

// awaitExit returns when the process has ended, after what it has left behind in its process group.
func (m *remote) awaitExit() {
	process.AwaitExit(m.cmd.Process.Pid)
	m.kill()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reaped = true
}

// read passes on what a launcher says, until its end.
func (r *hostsRun) read(m *remote, out io.Reader) error {
	in := bufio.NewReader(out)
	noise, err := awaitMagic(in)
	if len(noise) > 0 {
		r.show(m, strings.NewReader(string(noise)))
	}
	if err == nil {
		r.events <- remoteEvent{from: m, up: true}
	}
	for err == nil {
		var f frame
		m.heard.Store(time.Now().UnixNano())
		f, err = readFrame(in)
		m.heard.Store(0)
		if err != nil {
			break
		}
		switch f.kind {
		case frameStdout:
			r.console.Print(r.console.Out, f.data)
		case frameStderr:
			r.console.Print(r.console.Err, f.data)
		case frameBeat:
		default:
			r.events <- remoteEvent{from: m, frame: f}
		}
	}
	if !errors.Is(err, io.EOF) {
		m.kill() // it says what nobody understands
	}
	io.Copy(io.Discard, in)
	return err
}

// show shows what ssh, or a launcher that can't say it otherwise, has to say.
func (r *hostsRun) show(m *remote, from io.Reader) {
	line := &process.LineWriter{Console: r.console, W: r.console.Err, Prefix: "chorus: " + m.Name + ": ", Foreign: true}
	defer line.Close()
	io.Copy(io.MultiWriter(line, &m.words), from)
}

// silent is for how long a launcher has said nothing, and since when; 0: it isn't up. While slept it could not be heard.
func (m *remote) silent(now time.Time, slept time.Duration) (time.Duration, string) {
	heard := m.heard.Load()
	if heard == 0 {
		return 0, ""
	}
	if slept > 0 {
		m.heard.CompareAndSwap(heard, heard+slept.Nanoseconds())
		return 0, ""
	}
	at := time.Unix(0, heard)
	return now.Sub(at), process.Since(at)
}

// queue sends a frame. One that a host doesn't take is lost, as the host is then.
func (m *remote) queue(kind frameKind, data []byte) {
	if m.closed {
		return
	}
	select {
	case m.send <- appendFrame(nil, kind, data):
	default:
	}
}

// close ends what is sent.
func (m *remote) close() {
	if !m.closed {
		m.closed = true
		close(m.send)
	}
}

// kill ends the process by which the launcher is reached, with what it has started: ssh, or a launcher on this host,
// whose guard ends its ranks.
func (m *remote) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil && !m.reaped {
		syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) // its error says that they have ended
	}
}
