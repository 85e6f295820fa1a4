package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A guard is a small process beside the harness that kills the libraries' processes if the harness dies: most of
// them are stopped, so that they would not notice, and stay for ever. Package launch's guard knows process
// groups only; launchers of MPI give their ranks groups, and sessions, of their own.
type guard struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	w   io.WriteCloser
}

func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &guard{cmd: exec.Command(self, "guard")}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	if g.w, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

// add puts a process, and its group if it leads one, under guard; remove takes it away.
func (g *guard) add(pid int)    { g.say('+', pid) }
func (g *guard) remove(pid int) { g.say('-', pid) }

func (g *guard) say(op byte, pid int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	fmt.Fprintf(g.w, "%c%d\n", op, pid)
}

func (g *guard) close() {
	g.w.Close()
	g.cmd.Wait()
}

// watch is the guard's main function: it returns when r ends, having killed what was still alive.
func watch(r io.Reader, kill func(pid int)) error {
	alive := map[int]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var op byte
		var pid int
		if n, err := fmt.Sscanf(lines.Text(), "%c%d", &op, &pid); n != 2 || err != nil || pid < 2 || op != '+' && op != '-' {
			return fmt.Errorf("guard: want +PID or -PID, not %q", lines.Text())
		}
		if op == '+' {
			alive[pid] = true
		} else {
			delete(alive, pid)
		}
	}
	for pid := range alive {
		kill(pid)
	}
	return lines.Err()
}

// killHard ends a process, stopped or not, and its group if it leads one.
func killHard(pid int) {
	syscall.Kill(-pid, syscall.SIGKILL)
	syscall.Kill(pid, syscall.SIGKILL)
}
