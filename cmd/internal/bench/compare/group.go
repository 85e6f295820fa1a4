package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = 60 * time.Second // for all ranks to have said hello
	turnLimit  = 40 * time.Second // for a burst
	endLimit   = 5 * time.Second  // for the ranks to end by themselves
)

// greeting is the first line of each rank.
type greeting struct {
	Rank    int    `json:"rank"`
	PID     int    `json:"pid"`
	Library string `json:"library,omitempty"` // the version that runs, in the library's words
}

// answer is a rank's line after a burst.
type answer struct {
	US        []float64 `json:"us"`
	Wrong     int       `json:"wrong"`
	Error     string    `json:"error"`
	LimitUS   float64   `json:"limit_us"`
	Algorithm string    `json:"algorithm"`
	Allocs    float64   `json:"allocs"`
}

// member is a rank of a group.
type member struct {
	conn net.Conn
	in   *bufio.Reader
	pid  int
}

// group is a library in one setting, running. Between its turns its ranks sleep or are stopped.
type group struct {
	name    string
	stops   bool // whether its ranks are stopped between turns
	guard   *guard
	members []member
	procs   []*exec.Cmd
	library string // what runs in its ranks, in the library's words
	output  lockedBuffer
	ended   chan error // from each process
}

// lockedBuffer keeps what the processes print, for when they fail.
type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) lastLines() string {
	b.Lock()
	defer b.Unlock()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], " / ")
}

// startGroup starts the commands, which together are ranks ranks that connect to the socket.
func startGroup(ctx context.Context, name, socket string, ranks int, stops bool, gd *guard, env []string,
	commands [][]string) (_ *group, err error) {
	os.Remove(socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	g := &group{name: name, stops: stops, guard: gd, members: make([]member, ranks), ended: make(chan error,
		len(commands))}
	defer func() {
		if err != nil {
			g.kill()
		}
	}()
	for _, c := range commands {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir = filepath.Dir(socket)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &g.output, &g.output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.WaitDelay = time.Second
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		g.procs = append(g.procs, cmd)
		gd.add(cmd.Process.Pid)
		go func() { g.ended <- cmd.Wait() }()
	}
	deadline := time.Now().Add(startLimit)
	for range ranks {
		conn, err := g.accept(ctx, l, deadline)
		if err != nil {
			return nil, fmt.Errorf("%s did not start: %w: %s", name, err, g.output.lastLines())
		}
		in := bufio.NewReader(conn)
		var hello greeting
		if err := readLine(conn, in, deadline, &hello); err != nil {
			return nil, fmt.Errorf("%s did not start: %w: %s", name, err, g.output.lastLines())
		}
		if hello.Rank < 0 || hello.Rank >= ranks || g.members[hello.Rank].conn != nil {
			return nil, fmt.Errorf("%s: a rank %d among %d", name, hello.Rank, ranks)
		}
		g.members[hello.Rank], g.library = member{conn, in, hello.PID}, strings.Join(strings.Fields(hello.Library), " ")
		gd.add(hello.PID)
	}
	g.signal(syscall.SIGSTOP)
	return g, nil
}

// accept waits for a rank, but not after a process has ended.
func (g *group) accept(ctx context.Context, l *net.UnixListener, deadline time.Time) (net.Conn, error) {
	for {
		l.SetDeadline(time.Now().Add(100 * time.Millisecond))
		conn, err := l.Accept()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		select {
		case err := <-g.ended:
			g.ended <- err
			return nil, fmt.Errorf("its process ended (%v)", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no rank connected within %v", startLimit)
		}
	}
}

func readLine(conn net.Conn, in *bufio.Reader, deadline time.Time, v any) error {
	conn.SetReadDeadline(deadline)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	return nil
}

// ask sends every rank a command and returns their answers.
func (g *group) ask(command string) ([]answer, error) {
	g.signal(syscall.SIGCONT)
	defer g.signal(syscall.SIGSTOP)
	for _, m := range g.members {
		if _, err := m.conn.Write([]byte(command + "\n")); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", g.name, err, g.output.lastLines())
		}
	}
	deadline := time.Now().Add(turnLimit)
	all := make([]answer, len(g.members))
	for r, m := range g.members {
		if err := readLine(m.conn, m.in, deadline, &all[r]); err != nil {
			return nil, fmt.Errorf("%s, rank %d: %w: %s", g.name, r, err, g.output.lastLines())
		}
	}
	return all, nil
}

// errUnsupported is what a library hasn't got.
var errUnsupported = errors.New("unsupported")

// combine makes one answer of all ranks': the slowest rank's median counts.
func combine(all []answer) (a answer, err error) {
	for _, x := range all {
		if x.Error != "" {
			return a, fmt.Errorf("%w: %s", errUnsupported, x.Error)
		}
		if us := median(x.US); len(a.US) == 0 || us > a.US[0] {
			a.US = []float64{us}
		}
		a.LimitUS, a.Allocs = max(a.LimitUS, x.LimitUS), max(a.Allocs, x.Allocs)
		a.Wrong += x.Wrong
		a.Algorithm = x.Algorithm
	}
	return a, nil
}

func (g *group) signal(s syscall.Signal) {
	if !g.stops {
		return
	}
	for _, m := range g.members {
		if m.pid > 0 {
			syscall.Kill(m.pid, s)
		}
	}
}

// end lets the ranks finish, and kills those that don't.
func (g *group) end() {
	g.signal(syscall.SIGCONT)
	for _, m := range g.members {
		m.conn.Close()
	}
	limit := time.After(endLimit)
	for range g.procs {
		select {
		case <-g.ended:
		case <-limit:
			g.kill()
			return
		}
	}
	g.unguard()
}

// kill ends the group's processes, and the ranks that their launcher started elsewhere.
func (g *group) kill() {
	for _, p := range g.procs {
		killHard(p.Process.Pid)
	}
	for _, m := range g.members {
		if m.pid > 0 {
			killHard(m.pid)
		}
		if m.conn != nil {
			m.conn.Close()
		}
	}
	g.unguard()
}

// unguard takes what has ended away from the guard, since the kernel gives process ids to others again.
func (g *group) unguard() {
	for _, p := range g.procs {
		g.guard.remove(p.Process.Pid)
	}
	for _, m := range g.members {
		g.guard.remove(m.pid)
	}
}

// command is the line for a burst.
func (s schedule) command(op string, bytes int, inPlace, refill, check bool, suffix string) string {
	bit := func(b bool) int { return slices.Index([]bool{false, true}, b) }
	line := fmt.Sprintf("run %s %d %d %d %d %d %d %d", op, bytes, bit(inPlace), bit(refill), s.warmup, s.blocks,
		s.perBlock, bit(check))
	if suffix != "" {
		line += " " + suffix
	}
	return line
}
