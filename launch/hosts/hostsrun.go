package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/launch/internal/process"
)

// Job starts the launchers of a job on several hosts, one on each: by ssh, or without it on this host. It shows what
// they and their ranks print, gives them signals, and ends them all when one is lost. Fill the fields, then call Run
// once. The job itself is that of the launchers, which call Node.
type Job struct {
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

// Attach does what Attach of a launch.Job does.
func (h *Job) Attach(stdout, stderr io.Writer) {
	h.signals, h.Stdout, h.Stderr = process.Attach(stdout, stderr)
}

// endTime is how long the launchers may take to end beyond twice Grace, which they need if ranks don't stop.
const endTime = 10 * time.Second

// Run starts the launchers and returns when all have ended. It returns nil when all ranks of all hosts have exited with
// status 0, and the job's failure, which has been explained on Stderr, as a [*Failure]. A host that can't be reached or
// whose connection ends is one of kind NodeLost.
func (h *Job) Run(ctx context.Context) error {
	if len(h.Hosts) == 0 || len(h.SSH) == 0 || len(h.Self) == 0 {
		return process.BadArgument("no hosts, or nothing to start launchers with")
	}
	r := &hostsRun{Job: h, console: &process.Console{Out: h.Stdout, Err: h.Stderr}, events: make(chan remoteEvent)}
	r.Orders.Nodes, r.Orders.Input = len(h.Hosts), h.Stdin != nil
	if len(h.Hosts) > 1 && h.Meet {
		host, err := h.meeting()
		if err != nil {
			return err
		}
		r.meeting = host
	}
	for n, ranks := range rankNames(h.Hosts) {
		r.remotes = append(r.remotes, r.start(n, ranks))
	}
	r.left = len(r.remotes)
	if err := r.watch(ctx); err != nil {
		return err
	}
	return r.console.Failure()
}

// hostsRun is a Job that runs. Its methods run on one goroutine.
type hostsRun struct {
	*Job
	console *process.Console
	meeting string // host of the rendezvous; empty: the flags say it
	remotes []*remote
	left    int // of them have not ended
	events  chan remoteEvent
	input   <-chan []byte // pieces of standard input; nil: rank 0 has not taken the last one

	served   bool             // the first launcher serves the rendezvous
	outcome  error            // the first
	over     bool             // some launcher has ended, or the job has failed
	signaled *launch.Failure  // the first signal that ends the job; nil: there was none
	deadline <-chan time.Time // at which cut is called
	cutAt    time.Time        // when that is
	hasty    bool             // a second signal has come
	looked   time.Time        // when the launchers were last looked at
}

// rankNames names the ranks of each node, "" where a number of them or of those before isn't known.
func rankNames(hosts []Host) []string {
	names := make([]string, len(hosts))
	first := 0
	for n, h := range hosts {
		if h.Slots == 0 {
			break
		}
		names[n] = fmt.Sprintf("rank %d", first)
		if h.Slots > 1 {
			names[n] = fmt.Sprintf("ranks %d-%d", first, first+h.Slots-1)
		}
		first += h.Slots
	}
	return names
}

// watch returns when all launchers have ended.
func (r *hostsRun) watch(ctx context.Context) error {
	every := max(r.LostAfter/10, time.Millisecond)
	beats := time.NewTicker(every)
	defer beats.Stop()
	r.looked = time.Now()
	late := time.After(r.JoinTimeout)
	done := ctx.Done()
	for r.left > 0 {
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
			r.look(every)
		case <-late:
			r.late()
		case <-r.deadline:
			r.deadline = nil
			r.cut()
		}
	}
	return r.outcome
}

// look finds launchers that are silent.
func (r *hostsRun) look(every time.Duration) {
	now := time.Now()
	slept := max(now.Sub(r.looked)-2*every, 0) // this process was stopped itself, and could not hear them
	r.looked = now
	for _, m := range r.remotes {
		if silent, since := m.silent(now, slept); silent > r.LostAfter && !m.done && !m.gone {
			r.lose(m, "its launcher has been silent "+since)
		}
	}
}

// late gives up launchers that have not begun within JoinTimeout. The others wait for the first to serve the
// rendezvous.
func (r *hostsRun) late() {
	for _, m := range r.remotes {
		serves := m.node == 0 && len(r.remotes) > 1
		if r.over || m.begun && (r.served || !serves) {
			continue
		}
		r.lose(m, fmt.Sprintf("its launcher has not come within %s", r.JoinTimeout))
	}
}

// cutIn has cut called after a time, unless it will be earlier.
func (r *hostsRun) cutIn(d time.Duration) {
	if at := time.Now().Add(d); r.deadline == nil || at.Before(r.cutAt) {
		r.deadline, r.cutAt = time.After(d), at
	}
}

// cut ends launchers that don't end by themselves.
func (r *hostsRun) cut() {
	for _, m := range r.remotes {
		if m.gone {
			continue
		}
		r.console.Printf("node %d (%s) does not end: its connection is cut", m.node, m.Name)
		done := m.done // its ssh alone doesn't end
		r.drop(m)
		switch {
		case done || r.outcome != nil:
		case r.signaled != nil:
			r.outcome = r.signaled
		default:
			r.outcome = &launch.Failure{Kind: launch.NodeLost, Node: m.node, Host: m.Name, Reason: "its launcher does not end"}
		}
	}
}

func (r *hostsRun) handle(e remoteEvent) {
	m := e.from
	switch {
	case e.up:
		m.up = true
		r.order(m)
	case e.frame.kind == frameBegun:
		m.begun = true
	case e.frame.kind == frameServing && m.node == 0:
		r.served = true
		if r.Meet {
			r.Orders.Endpoint = string(e.frame.data)
		}
		for _, m := range r.remotes {
			r.order(m)
		}
	case e.frame.kind == frameMore:
		r.more()
	case e.frame.kind == frameEnd:
		r.ended(m, e.frame.data)
	case e.frame.kind == 0:
		m.gone = true
		r.left--
		m.close()
		if !m.done {
			r.vanished(m, e.err)
		}
	}
}

// order gives orders to a launcher that waits for them: to the first at once, and to the others when they have a place
// to meet.
func (r *hostsRun) order(m *remote) {
	if r.over || !m.up || m.ready || m.node > 0 && !r.served {
		return
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
		r.cancel(&launch.Failure{Kind: launch.NodeLost, Node: m.node, Host: m.Name, Reason: e.Text})
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

// Code is the exit status that goes with it.
func (e *hostError) Code() int { return e.ending.Code }

// Is reports whether the error is about the command line.
func (e *hostError) Is(target error) bool { return target == launch.ErrArgument && e.ending.Usage }

// ending sets the time at which all launchers must have ended.
func (r *hostsRun) ending() {
	r.over = true
	r.cutIn(2*r.Grace + endTime)
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
	words := m.words.Last()
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
	f := &launch.Failure{Kind: launch.NodeLost, Node: m.node, Host: m.Name, Reason: reason}
	r.outcome = f
	name := f.Host
	if m.ranks != "" {
		name += ", " + m.ranks
	}
	r.console.Printf("node %d (%s) is lost: %s", f.Node, name, reason)
	r.cancel(f)
}

// cancel ends the job by a failure that has been explained.
func (r *hostsRun) cancel(f *launch.Failure) {
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
	switch {
	case !ends:
		return
	case r.over && !r.hasty: // it asks for haste: the ranks are killed, which takes the launchers a moment
		r.hasty = true
		r.cutIn(r.LostAfter)
	case r.over:
	default:
		r.ending()
	}
	if r.signaled == nil {
		host, _ := os.Hostname()
		r.signaled = &launch.Failure{Kind: launch.Interrupted, Host: host, Signal: sig}
	}
	if !told && r.outcome == nil {
		r.outcome = r.signaled
		r.console.Printf("%v", r.signaled)
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
