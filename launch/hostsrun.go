package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
)

// Hosts starts the launchers of a job on several hosts, one on each: by ssh, or without it on this host. It shows what
// they and their ranks print, gives them signals, and ends them all when one is lost. Fill the fields, then call Run
// once. The job itself is that of the launchers, which call Node.
type Hosts struct {
	Hosts  []Host
	SSH    []string // the command ssh, with arguments of its own
	Remote string   // chorus on the other hosts: a path, or a name in PATH
	Self   []string // the command that calls Node on this host

	Orders      Orders              // what is the same for all
	Flags       func(Host) []string // flags of chorus run for a host's launcher; they are added to those of Orders
	Meet        bool                // the hosts meet where Run finds out; else the flags say where
	JoinTimeout time.Duration       // how long the launchers may take to come
	LostAfter   time.Duration       // silence after which a host is lost
	Grace       time.Duration       // time that ranks have to stop

	Stdin          *os.File // standard input of rank 0; nil: none
	Stdout, Stderr io.Writer

	signals chan os.Signal
}

// Attach does for Hosts what Job.Attach does for Job.
func (h *Hosts) Attach(stdout, stderr io.Writer) {
	h.signals, h.Stdout, h.Stderr = attach(stdout, stderr)
}

// endTime is how long the launchers may take to end beyond twice Grace, which they need if ranks don't stop.
const endTime = 10 * time.Second

// Run starts the launchers and returns when all have ended. It returns nil when all ranks of all hosts have exited with
// status 0, and the job's failure, which has been explained on Stderr, as a [*Failure]. A host that can't be reached or
// whose connection ends is one of kind NodeLost.
func (h *Hosts) Run(ctx context.Context) error {
	if len(h.Hosts) == 0 || len(h.SSH) == 0 || len(h.Self) == 0 {
		return badArgument("no hosts, or nothing to start launchers with")
	}
	r := &hostsRun{Hosts: h, console: &console{out: h.Stdout, err: h.Stderr}, events: make(chan remoteEvent)}
	r.Orders.Nodes, r.Orders.Input = len(h.Hosts), h.Stdin != nil
	if len(h.Hosts) > 1 && h.Meet {
		host, err := h.meeting()
		if err != nil {
			return err
		}
		r.meeting = host
	}
	for n, host := range h.Hosts {
		r.remotes = append(r.remotes, r.start(n, host))
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	return r.console.failure()
}

// hostsRun is a Hosts that runs. Its methods run on one goroutine.
type hostsRun struct {
	*Hosts
	console *console
	meeting string // host of the rendezvous; empty: the flags say it
	remotes []*remote
	events  chan remoteEvent
	input   <-chan []byte // pieces of standard input; nil: rank 0 has not taken the last one

	served   bool  // the first launcher serves the rendezvous
	outcome  error // the first
	over     bool  // some launcher has ended, or the job has failed
	deadline <-chan time.Time
}

// remote is the launcher of one host, as it's seen from here.
type remote struct {
	Host
	node   int
	ranks  string // that it has; empty: not known
	cmd    *exec.Cmd
	send   chan []byte // frames to it; closed: no more
	closed bool
	up     bool // it waits for orders, or has them
	ready  bool // it has its orders
	done   bool // it has said how it ended
	gone   bool // its process has ended
	words  tail // of its standard error
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

// start starts the launcher of one host.
func (r *hostsRun) start(node int, host Host) *remote {
	m := &remote{Host: host, node: node, ranks: r.ranksOf(node), send: make(chan []byte, queueLength)}
	command := r.command(host)
	m.cmd = exec.Command(command[0], command[1:]...)
	// A session of its own keeps the terminal's signals and ssh's questions away.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := m.cmd.StdinPipe()
	var out, errs io.ReadCloser
	if err == nil {
		out, err = m.cmd.StdoutPipe()
	}
	if err == nil {
		errs, err = m.cmd.StderrPipe()
	}
	if err == nil {
		err = m.cmd.Start()
	}
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
	readers.Go(func() { failed = r.read(m, out) })
	readers.Go(func() { r.show(m, errs) })
	go func() {
		readers.Wait()
		err := m.cmd.Wait()
		if err == nil || failed != nil && !errors.Is(failed, io.EOF) {
			err = failed
		}
		r.events <- remoteEvent{from: m, err: err}
	}()
	return m
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
		if f, err = readFrame(in); err != nil {
			break
		}
		switch f.kind {
		case frameStdout:
			r.print(r.console.out, f.data)
		case frameStderr:
			r.print(r.console.err, f.data)
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

func (r *hostsRun) print(w io.Writer, text []byte) {
	r.console.mu.Lock()
	defer r.console.mu.Unlock()
	r.console.write(w, text)
}

// show shows what ssh, or a launcher that can't say it otherwise, has to say.
func (r *hostsRun) show(m *remote, from io.Reader) {
	line := &lineWriter{console: r.console, w: r.console.err, prefix: "chorus: " + m.Name + ": "}
	defer line.close()
	io.Copy(io.MultiWriter(line, &m.words), from)
}

// ranksOf names the ranks of a node where the numbers of all nodes before it are known.
func (r *hostsRun) ranksOf(node int) string {
	first := 0
	for _, h := range r.Hosts.Hosts[:node] {
		if h.Slots == 0 {
			return ""
		}
		first += h.Slots
	}
	var ranks []int
	for i := range r.Hosts.Hosts[node].Slots {
		ranks = append(ranks, first+i)
	}
	if ranks == nil {
		return ""
	}
	return wire.NamedRanks(ranks)
}

// watch returns when all launchers have ended.
func (r *hostsRun) watch(ctx context.Context) error {
	beats := time.NewTicker(max(r.LostAfter/10, time.Millisecond))
	defer beats.Stop()
	late := time.After(r.JoinTimeout)
	done := ctx.Done()
	for r.left() > 0 {
		select {
		case e := <-r.events:
			r.handle(e)
		case piece := <-r.input:
			r.input = nil
			r.remotes[0].queue(frameInput, piece)
		case sig := <-r.signals:
			r.signal(sig.(syscall.Signal))
		case <-done:
			done = nil
			r.signal(syscall.SIGTERM)
		case <-beats.C:
			for _, m := range r.remotes {
				if m.ready {
					m.queue(frameBeat, nil)
				}
			}
		case <-late:
			for _, m := range r.remotes {
				if !m.up && !r.over {
					r.lose(m, fmt.Sprintf("its launcher has not come within %s", r.JoinTimeout))
				}
			}
		case <-r.deadline:
			for _, m := range r.remotes {
				if !m.gone {
					r.console.printf("node %d (%s) does not end: its connection is cut", m.node, m.Name)
					m.kill()
				}
			}
			r.deadline = nil
		}
	}
	return r.outcome
}

// left is how many launchers have not ended.
func (r *hostsRun) left() (n int) {
	for _, m := range r.remotes {
		if !m.gone {
			n++
		}
	}
	return n
}

func (r *hostsRun) handle(e remoteEvent) {
	m := e.from
	switch {
	case e.up:
		m.up = true
		r.order()
	case e.frame.kind == frameServing && m.node == 0:
		r.served = true
		if r.Meet {
			r.Orders.Endpoint = string(e.frame.data)
		}
		r.order()
	case e.frame.kind == frameMore:
		r.more()
	case e.frame.kind == frameEnd:
		r.ended(m, e.frame.data)
	case e.frame.kind == 0:
		m.gone = true
		m.close()
		if !m.done {
			r.vanished(m, e.err)
		}
	}
}

// order gives orders to the launchers that wait for them: to the first at once, and to the others when they have a
// place to meet.
func (r *hostsRun) order() {
	if r.over {
		return
	}
	for _, m := range r.remotes {
		if !m.up || m.ready || m.node > 0 && !r.served {
			continue
		}
		o := r.Orders
		o.Node, o.Name, o.LostAfter = m.node, m.Name, r.LostAfter
		o.Input = o.Input && m.node == 0
		if m.node == 0 && r.meeting != "" {
			o.Endpoint = net.JoinHostPort(r.meeting, "0")
		}
		o.Flags = append(append([]string{}, o.Flags...), r.Flags(m.Host)...)
		data, err := json.Marshal(o)
		if err != nil {
			r.lose(m, err.Error())
			return
		}
		m.ready = true
		m.queue(frameOrders, data)
		if o.Input {
			r.more()
		}
	}
}

// ended notes how a launcher has ended.
func (r *hostsRun) ended(m *remote, data []byte) {
	var e ending
	if err := json.Unmarshal(data, &e); err != nil {
		e.Text, e.Code = "it doesn't say how it ended: "+err.Error(), 1
	}
	m.done = true
	m.close()
	r.ending()
	if r.outcome != nil {
		return
	}
	switch {
	case e.Failure != nil:
		r.outcome = e.Failure
	case e.Text != "":
		r.outcome = &hostError{m.Name, e}
		r.cancel(&Failure{Kind: NodeLost, Node: m.node, Host: m.Name, Reason: e.Text})
	}
}

// hostError is an error of a launcher on some host.
type hostError struct {
	host   string
	ending ending
}

// Error implements error.
func (e *hostError) Error() string {
	return e.host + ": " + strings.TrimPrefix(e.ending.Text, "launch: ")
}

// Is reports whether the error is about the command line.
func (e *hostError) Is(target error) bool { return target == ErrArgument && e.ending.Usage }

// ending sets the time at which all launchers must have ended.
func (r *hostsRun) ending() {
	r.over = true
	if r.deadline == nil {
		r.deadline = time.After(2*r.Grace + endTime)
	}
}

// vanished handles the end of a launcher that has not said how it ended.
func (r *hostsRun) vanished(m *remote, err error) {
	how := "ssh ended"
	if m.Local() {
		how = "it ended"
	}
	status := -1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
		how += " with " + exit.Error()
	} else if err != nil && !errors.Is(err, io.EOF) {
		how += ": " + err.Error()
	}
	words := m.words.last()
	if len(words) > 0 {
		how += ": " + words[len(words)-1]
	}
	if m.up {
		r.lose(m, "the connection to its launcher has ended: "+how)
		return
	}
	reason := "its launcher could not be started: " + how
	if todo := advice(m.Host, status, words); todo != "" {
		reason += "\n" + todo
	}
	r.lose(m, reason)
}

// lose says that a node is lost, and ends the job.
func (r *hostsRun) lose(m *remote, reason string) {
	r.drop(m)
	if r.outcome != nil {
		return
	}
	f := &Failure{Kind: NodeLost, Node: m.node, Host: m.Name, Reason: reason}
	r.outcome = f
	name := f.Host
	if m.ranks != "" {
		name += ", " + m.ranks
	}
	r.console.printf("node %d (%s) is lost: %s", f.Node, name, reason)
	r.cancel(f)
}

// cancel ends the job by a failure that has been explained.
func (r *hostsRun) cancel(f *Failure) {
	r.ending()
	told := *f
	told.Told = true
	data, err := json.Marshal(told)
	for _, m := range r.remotes {
		switch {
		case m.done || m.gone:
		case m.ready && err == nil:
			m.queue(frameCanceled, data)
		default:
			r.drop(m)
		}
	}
}

// drop ends a launcher that has no ranks yet, or is lost.
func (r *hostsRun) drop(m *remote) {
	m.done = true
	m.close()
	m.kill()
}

// signal passes a signal on to all launchers. One that ends the job also ends those that have no ranks yet.
func (r *hostsRun) signal(sig syscall.Signal) {
	ends := sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2
	if sig == syscall.SIGPIPE && r.over {
		return // one comes for every write
	}
	told := false
	for _, m := range r.remotes {
		switch {
		case m.done || m.gone:
		case m.ready:
			m.queue(frameSignal, []byte{byte(sig)})
			told = true
		case ends:
			r.drop(m)
		}
	}
	if !ends {
		return
	}
	r.ending()
	if !told && r.outcome == nil {
		host, _ := os.Hostname()
		f := &Failure{Kind: Interrupted, Host: host, Signal: sig}
		r.outcome = f
		r.console.printf("%v", f)
	}
}

// inputPiece is how much of standard input goes to rank 0 at a time.
const inputPiece = 64 << 10

// more reads a piece of standard input, for rank 0. The next is read when the rank has taken it.
func (r *hostsRun) more() {
	if r.Stdin == nil {
		return
	}
	pieces := make(chan []byte, 1)
	r.input = pieces
	stdin := r.Stdin
	go func() {
		buf := make([]byte, inputPiece)
		n, err := stdin.Read(buf)
		if err != nil {
			n = 0 // the end, for the rank
		}
		pieces <- buf[:n]
	}()
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

// kill ends the process by which the launcher is reached: ssh, or a launcher on this host, whose guard ends its ranks.
func (m *remote) kill() {
	if m.cmd != nil {
		m.cmd.Process.Kill() // its error says that it has ended
	}
}
